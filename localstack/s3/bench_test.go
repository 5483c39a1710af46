package s3

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"thermocline/tiering/object"
	"thermocline/tiering/object/objecttest"
	"thermocline/tiering/object/storeurl"
)

// plain is the floor: a server that only keeps files, and a client that only
// speaks HTTP.
func plain(b *testing.B) (put func(key string, body []byte) error, get func(key string, p []byte) error) {
	b.Helper()
	dir := b.TempDir()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Join(dir, filepath.Base(r.URL.Path))
		if r.Method != http.MethodPut {
			http.ServeFile(w, r, name)
			return
		}
		f, err := os.Create(name)
		if err == nil {
			_, err = io.Copy(f, r.Body)
			err = firstOf(err, f.Close())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	b.Cleanup(web.Close)
	do := func(method, key string, body io.Reader, p []byte) error {
		req, err := http.NewRequest(method, web.URL+"/"+key, body)
		if err != nil {
			return err
		}
		resp, err := web.Client().Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s %s: %s", method, key, resp.Status)
		}
		_, err = io.ReadFull(resp.Body, p)
		return err
	}
	put = func(key string, body []byte) error { return do(http.MethodPut, key, bytes.NewReader(body), nil) }
	get = func(key string, p []byte) error { return do(http.MethodGet, key, nil, p) }
	return put, get
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// benched returns the three adapters by name; the server does not sync here.
func benched(b *testing.B) map[string]object.Store {
	b.Helper()
	access, secret := server.Credentials()
	b.Setenv("AWS_ACCESS_KEY_ID", access)
	b.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	out := map[string]object.Store{}
	for name, raw := range map[string]string{"s3": server.S3URL("bench"), "minio": server.MinioURL("bench"), "file": "file://" + b.TempDir()} {
		s, err := storeurl.Open(b.Context(), raw, object.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := object.Close(s); err != nil {
				b.Error(err)
			}
		})
		out[name] = s
	}
	return out
}

func run(b *testing.B, name string, size int, fn func(i int64) error) {
	var n atomic.Int64
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			if err := fn(n.Add(1)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

var benchSizes = []int{4 << 10, 8 << 20, 64 << 20}

func BenchmarkPut(b *testing.B) {
	put, _ := plain(b)
	stores := benched(b)
	for _, size := range benchSizes {
		body := objecttest.Random(1, size)
		crc := object.CRC32C(body)
		run(b, fmt.Sprintf("plain/%d", size), size, func(i int64) error { return put(fmt.Sprint(i%16), body) })
		for _, name := range []string{"s3", "minio", "file"} {
			run(b, fmt.Sprintf("%s/%d", name, size), size, func(i int64) error {
				return stores[name].Put(b.Context(), fmt.Sprint("k", i%16), bytes.NewReader(body), object.PutOptions{CRC32C: crc})
			})
		}
	}
}

func BenchmarkGet(b *testing.B) {
	put, get := plain(b)
	stores := benched(b)
	for _, size := range benchSizes[:2] {
		body, p := objecttest.Random(1, size), make([]byte, size)
		if err := put("x", body); err != nil {
			b.Fatal(err)
		}
		run(b, fmt.Sprintf("plain/%d", size), size, func(int64) error { return get("x", p) })
		for _, name := range []string{"s3", "minio", "file"} {
			if err := stores[name].Put(b.Context(), "x", bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body)}); err != nil {
				b.Fatal(err)
			}
			run(b, fmt.Sprintf("%s/%d", name, size), size, func(int64) error {
				_, err := stores[name].GetRange(b.Context(), "x", 0, p)
				return err
			})
		}
	}
}
