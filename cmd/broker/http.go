package broker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Admin serves metrics, health and profiles of the brokers in one process.
type Admin struct {
	listener net.Listener
	server   *http.Server
	meters   *sdkmetric.MeterProvider
	exported *exported
	ended    chan struct{}
	mux      *http.ServeMux
}

// Check tells whether something is well; the error says what is not.
type Check func() error

// StartAdmin listens on addr. ready decides /readyz; status is served as JSON
// on /status.
func StartAdmin(addr string, ready Check, status func() any) (*Admin, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	figures := &exported{started: time.Now()}
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithProducer(figures))
	if err != nil {
		l.Close()
		return nil, err
	}
	a := &Admin{listener: l, meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), exported: figures, ended: make(chan struct{}), mux: adminMux(registry, ready, status)}
	a.server = &http.Server{Handler: a.mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(a.ended)
		_ = a.server.Serve(l) // returns when the listener is closed
	}()
	return a, nil
}

func adminMux(registry *prometheus.Registry, ready Check, status func() any) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("ready\n"))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(status()) // the client went away
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return mux
}

// Addr is where it listens.
func (a *Admin) Addr() string { return a.listener.Addr().String() }

// Close stops serving.
func (a *Admin) Close(ctx context.Context) error {
	err := a.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = a.server.Close() // a profile may still be running
	}
	<-a.ended
	return errors.Join(err, a.meters.Shutdown(ctx))
}
