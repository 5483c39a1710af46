package s3

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"thermocline/tiering/object"
	"thermocline/tiering/object/objecttest"
	"thermocline/tiering/object/storeurl"
)

func sectionOf(body []byte) object.Body { return bytes.NewReader(body) }

// begin starts an upload that nobody completes, and returns how many it started.
func begin(t *testing.T, ctx context.Context, adapter string) int {
	t.Helper()
	access, secret := server.Credentials()
	api := awss3.New(awss3.Options{Region: region, BaseEndpoint: aws.String(server.Endpoint()), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(access, secret, "")})
	key := strings.ToLower(t.Name()) + "/below/left/behind"
	bucket := server.Bucket()
	if _, err := api.CreateMultipartUpload(ctx, &awss3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
	return 1
}

const childDir, childAddr = "THERMOCLINE_TEST_S3_DIR", "THERMOCLINE_TEST_S3_ADDR"

// TestServeAsAProcess is both parent and child: Serve in a process of its own,
// killed, and started again over the same data.
func TestServeAsAProcess(t *testing.T) {
	if os.Getenv(childDir) != "" {
		t.Fatal("the child must not get here")
	}
	dir, addr := t.TempDir(), ""
	for round := range 2 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir, childAddr+"="+addr)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err, child.Process.Kill())
		}
		addr = strings.TrimPrefix(strings.TrimSpace(line), "http://")
		s, err := storeurl.Open(t.Context(), (Config{Addr: addr, AccessKey: "key", SecretKey: "secret", Bucket: "bucket"}).MinioURL("p"), object.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			objecttest.Put(t, s, "kept/x", []byte("kept"))
			if err := child.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait() // killed
			continue
		}
		if got := string(objecttest.Get(t, s, "kept/x")); got != "kept" {
			t.Errorf("after kill and restart: %q", got)
		}
		start := time.Now()
		if err := child.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(out)
		if err != nil || len(rest) > 0 {
			t.Errorf("the child prints: %q, %v", rest, err)
		}
		if err := child.Wait(); err != nil {
			t.Errorf("the child did not end well: %v", err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("stopping took %v", took)
		}
		if err := object.Close(s); err != nil {
			t.Error(err)
		}
	}
}
