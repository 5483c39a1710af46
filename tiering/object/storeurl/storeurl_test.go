package storeurl

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"thermocline/tiering/object"
	"thermocline/tiering/object/faulty"
	"thermocline/tiering/object/memory"
	"thermocline/tiering/object/minio"
	"thermocline/tiering/object/objecttest"
	"thermocline/tiering/object/s3"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]Target{
		"s3://bucket":  {S3: &s3.Config{Bucket: "bucket"}},
		"s3://bucket/": {S3: &s3.Config{Bucket: "bucket"}},
		"s3://my-bucket/a/b/?region=eu-central-1":   {S3: &s3.Config{Bucket: "my-bucket", Prefix: "a/b", Region: "eu-central-1"}},
		"s3://b01/p?endpoint=http://127.0.0.1:9000": {S3: &s3.Config{Bucket: "b01", Prefix: "p", Endpoint: "http://127.0.0.1:9000", PathStyle: true}},
		"s3://b01?endpoint=https://s3.example.org&path_style=false&checksum=none": {
			S3: &s3.Config{Bucket: "b01", Endpoint: "https://s3.example.org", NoChecksum: true}},
		"minio://minio:9000/bucket":                           {MinIO: &minio.Config{Host: "minio:9000", Bucket: "bucket"}},
		"minio://key:s%2Fcret@minio:9000/bucket/a/b":          {MinIO: &minio.Config{Host: "minio:9000", Bucket: "bucket", Prefix: "a/b", AccessKey: "key", SecretKey: "s/cret"}},
		"minio://minio.example.org:443/bucket":                {MinIO: &minio.Config{Host: "minio.example.org:443", Bucket: "bucket", Secure: true}},
		"minio://m/bucket?secure=true&checksum=crc32c":        {MinIO: &minio.Config{Host: "m", Bucket: "bucket", Secure: true}},
		"file:///var/lib/store/":                              {File: "/var/lib/store"},
		"memory:":                                             {Memory: &Memory{}},
		"memory:x?discard=true&keep=1MiB":                     {Memory: &Memory{Name: "x", Options: memory.Options{Discard: true, Keep: 1 << 20}}},
		"file:///d?latency=30ms&bandwidth=80MB&connections=8": {File: "/d", Link: faulty.Link{FirstByte: 30 * time.Millisecond, BytesPerSecond: 80e6, Conns: 8}},
	} {
		got, err := Parse(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: expected %+v, got %+v", raw, want, *got)
		}
	}
}

// secret is in the URLs below wherever a user might put one.
const secret = "hunter2"

func TestParseErrorsSayWhatToWrite(t *testing.T) {
	for raw, says := range map[string]string{
		"":                                        "file:///directory",
		"bucket":                                  "s3://bucket/prefix",
		"gs://bucket":                             "minio://host:port/bucket/prefix",
		"s3:///prefix":                            "bucket is missing",
		"s3://UPPER":                              "no bucket name",
		"s3://minio:9000/bucket":                  "endpoint=https://minio:9000",
		"s3://key:" + secret + "@bucket":          "AWS_ACCESS_KEY_ID",
		"s3://bucket?endpoint=host:9000":          "endpoint=https://host:port",
		"s3://bucket?path_style=yes":              "path_style=true",
		"s3://bucket?checksum=md5":                "checksum=crc32c",
		"s3://bucket?secure=true":                 "there are region, endpoint",
		"s3://bucket?region=a&region=b":           "twice",
		"s3://bucket/a//b":                        "segment",
		"s3://bucket/" + strings.Repeat("p", 300): "more than 255",
		"minio://minio:9000":                      "bucket is missing",
		"minio:///bucket":                         "host is missing",
		"minio://:9000/bucket":                    "no host:port",
		"minio://key@host:9000/bucket":            "MINIO_SECRET_KEY",
		"minio://key:" + secret + "%zz@h/bucket":  "percent-encoded",
		"minio://key:" + secret + "/x@h/bucket":   "percent-encoded",
		"minio://key:" + secret + "@h/b":          "no bucket name",
		"file://dir":                              "three slashes",
		"file:dir":                                "three slashes",
		"memory://x":                              "memory:name",
		"memory:?keep=-1":                         "keep=80MB",
		"memory:?keep=9999GiB":                    "keep=80MB",
		"file:///d?latency=fast":                  "latency=30ms",
		"file:///d?bandwidth=80Mi":                "bandwidth=80MB",
		"file:///d?a;b":                           "name=value",
	} {
		_, err := Parse(raw)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: expected an error with %q, got: %v", raw, says, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds the secret: %v", raw, err)
		}
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"minio://key:" + secret + "@h:9000/bucket?secure=true": "minio://…@h:9000/bucket?secure=true",
		"minio://key:a/?@" + secret + "@h:9000/bucket":         "minio://…@h:9000/bucket",
		"s3://bucket/p?region=r":                               "s3://bucket/p?region=r",
		"memory:x":                                             "memory:x",
		"key:" + secret:                                        "(not a store URL)",
	} {
		if got := Redact(raw); got != want {
			t.Errorf("%s: expected %s, got %s", raw, want, got)
		}
	}
}

func TestMinIOCredentials(t *testing.T) {
	env := map[string]string{}
	get := func(name string) string { return env[name] }
	var c minio.Config
	if err := minioCredentials(&c, get); err == nil || !strings.Contains(err.Error(), "MINIO_ACCESS_KEY") {
		t.Errorf("none: got %v", err)
	}
	for _, names := range [][2]string{{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, {"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"}, {"MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"}} {
		env[names[0]] = names[0]
		c = minio.Config{}
		if err := minioCredentials(&c, get); err == nil || !strings.Contains(err.Error(), names[1]) {
			t.Errorf("%s alone: got %v", names[0], err)
		}
		env[names[1]] = names[1]
		c = minio.Config{}
		if err := minioCredentials(&c, get); err != nil || c.AccessKey != names[0] || c.SecretKey != names[1] {
			t.Errorf("%s must go before the earlier ones: got %q, %v", names[0], c.AccessKey, err)
		}
	}
	c = minio.Config{AccessKey: "mine", SecretKey: "x"}
	if err := minioCredentials(&c, get); err != nil || c.AccessKey != "mine" {
		t.Errorf("the URL's own must go first: got %q, %v", c.AccessKey, err)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("MINIO_ACCESS_KEY", "k")
	t.Setenv("MINIO_SECRET_KEY", secret)
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	for _, raw := range []string{"s3://bucket/p?endpoint=http://127.0.0.1:1", "minio://u:" + secret + "@127.0.0.1:1/bucket/p", "minio://127.0.0.1:1/bucket", "file://" + t.TempDir(), "memory:" + t.Name()} {
		s, err := Open(t.Context(), raw, object.Options{})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if strings.Contains(s.String(), secret) {
			t.Errorf("%s: the name holds the secret: %s", raw, s)
		}
		if err := object.Close(s); err != nil {
			t.Error(err)
		}
	}
	a, errA := Open(t.Context(), "memory:"+t.Name(), object.Options{})
	b, errB := Open(t.Context(), "memory:"+t.Name()+"?latency=1ms", object.Options{})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	objecttest.Put(t, a, "x", []byte("x"))
	start := time.Now()
	if string(objecttest.Get(t, b, "x")) != "x" {
		t.Error("two opens of one memory store are two stores")
	}
	if time.Since(start) < 2*time.Millisecond { // a Head and a GetRange
		t.Error("the latency is not felt")
	}
}

func FuzzParse(f *testing.F) {
	for _, raw := range []string{"s3://bucket/p?region=r", "minio://k:s@h:1/bucket", "file:///x", "memory:x?keep=1KB", "s3://%", "minio://[::1]:9000/bucket"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		Redact(raw)
		target, err := Parse(raw)
		if err != nil {
			return
		}
		set := 0
		for _, is := range []bool{target.S3 != nil, target.MinIO != nil, target.File != "", target.Memory != nil} {
			if is {
				set++
			}
		}
		if set != 1 || target.Link.FirstByte < 0 || target.Link.BytesPerSecond < 0 || target.Link.Conns < 0 {
			t.Fatalf("%q: %+v", raw, target)
		}
		if u, err := url.Parse(raw); err != nil {
			t.Fatalf("%q: understood, but not a URL: %v", raw, err)
		} else if p, ok := u.User.Password(); ok && len(p) > 3 && strings.Contains(Redact(raw), p) && !strings.Contains(raw[strings.LastIndexByte(raw, '@'):], p) {
			t.Fatalf("%q: the secret is in %q", raw, Redact(raw))
		}
	})
}
