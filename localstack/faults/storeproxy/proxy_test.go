package storeproxy_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"thermocline/localstack/faults/storeproxy"
)

// behind is a server that counts what reaches it and answers with 64 KiB.
func behind(t *testing.T) (*storeproxy.Proxy, *atomic.Int64, *http.Client) {
	t.Helper()
	var got atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		got.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)+64<<10))
		w.Header().Set("X-Host", r.Host)
		w.Header().Set("X-Path", r.URL.EscapedPath())
		_, _ = w.Write(append(body, bytes.Repeat([]byte{'x'}, 64<<10)...))
	}))
	t.Cleanup(s.Close)
	p, err := storeproxy.Start(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, &got, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
}

// ask sends one request and reads the whole answer.
func ask(c *http.Client, method, url string, body string) (*http.Response, int, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp, len(raw), err
}

func TestModes(t *testing.T) {
	p, got, c := behind(t)
	url := "http://" + p.Addr() + "/bucket/a%2Fb"
	resp, n, err := ask(c, "PUT", url, "hello")
	if err != nil || n != 5+64<<10 || resp.Header.Get("X-Host") != p.Addr() || resp.Header.Get("X-Path") != "/bucket/a%2Fb" {
		t.Fatalf("pass: %d bytes, %v, %+v", n, err, resp)
	}
	for _, c1 := range []struct {
		mode    storeproxy.Mode
		method  string
		status  int   // 0: the connection breaks
		reaches int64 // requests behind the proxy
	}{
		{storeproxy.SlowDown, "PUT", 503, 0},
		{storeproxy.CutBody, "PUT", 0, 0},
		{storeproxy.CutBody, "GET", 0, 1},
		{storeproxy.LoseAnswer, "PUT", 0, 1},
		{storeproxy.LoseAnswer, "GET", 200, 1},
		{storeproxy.Pass, "GET", 200, 1},
	} {
		p.Set(c1.mode)
		before := got.Load()
		body := ""
		if c1.method == "PUT" {
			body = strings.Repeat("b", 1000)
		}
		resp, _, err := ask(c, c1.method, url, body)
		if c1.status == 0 && err == nil || c1.status != 0 && (err != nil || resp.StatusCode != c1.status) {
			t.Errorf("%s %v: expected %d, found %v, %v", c1.method, c1.mode, c1.status, resp, err)
		}
		if n := got.Load() - before; n != c1.reaches {
			t.Errorf("%s %v: %d requests came through, expected %d", c1.method, c1.mode, n, c1.reaches)
		}
	}
	if p.Hits(storeproxy.SlowDown) != 1 || p.Hits(storeproxy.CutBody) != 2 || p.Hits(storeproxy.LoseAnswer) != 1 {
		t.Errorf("hits: %d, %d, %d", p.Hits(storeproxy.SlowDown), p.Hits(storeproxy.CutBody), p.Hits(storeproxy.LoseAnswer))
	}
}

func TestHangEndsWithTheMode(t *testing.T) {
	p, got, c := behind(t)
	p.Set(storeproxy.Hang)
	ended := make(chan error, 1)
	go func() {
		_, _, err := ask(c, "GET", "http://"+p.Addr()+"/", "")
		ended <- err
	}()
	for p.Hits(storeproxy.Hang) == 0 {
		select {
		case err := <-ended:
			t.Fatalf("it was answered: %v", err)
		default:
		}
	}
	p.Set(storeproxy.Pass)
	if err := <-ended; err == nil || got.Load() != 0 {
		t.Fatalf("after the hang: %v, %d came through", err, got.Load())
	}
}

func TestAwayAndBack(t *testing.T) {
	p, _, c := behind(t)
	if err := p.Away(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(c, "GET", "http://"+p.Addr()+"/", ""); err == nil {
		t.Fatal("it answers while away")
	}
	if err := p.Back(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(c, "GET", "http://"+p.Addr()+"/", ""); err != nil {
		t.Fatal(err)
	}
}
