package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"thermocline/tiering/object"
)

// fake is a server in memory. hook is asked before each request is carried
// out, and again after it (call.After): what it returns is the answer.
type fake struct {
	mu      sync.Mutex
	objects map[string][]byte
	etags   map[string]int
	uploads map[string]map[int][]byte
	begun   map[string]time.Time
	version int
	calls   map[string]int
	busy    map[string]int // requests under way, by kind
	busiest map[string]int

	hook func(ctx context.Context, c call) error
	cut  func(n int) int // how many of n bytes of a Get come; nil: all
	// noRange answers Gets with whole objects; noCRC keeps no checksums.
	noRange, noCRC bool
	keyErrors      func(key string, nth int) error // of a DeleteBatch
}

type call struct {
	Kind, Key string
	N         int // of this kind, from 1 on
	After     bool
}

func newFake() *fake {
	return &fake{objects: map[string][]byte{}, etags: map[string]int{}, uploads: map[string]map[int][]byte{}, begun: map[string]time.Time{},
		calls: map[string]int{}, busy: map[string]int{}, busiest: map[string]int{}}
}

func answer(status int, code string) error {
	return &Failure{Status: status, Code: code, Err: errors.New("said the fake")}
}

// do counts a request and runs it between the hook's two calls.
func (f *fake) do(ctx context.Context, kind, key string, fn func() error) error {
	f.mu.Lock()
	f.calls[kind]++
	c := call{Kind: kind, Key: key, N: f.calls[kind]}
	f.busy[kind]++
	f.busiest[kind] = max(f.busiest[kind], f.busy[kind])
	hook := f.hook
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.busy[kind]--; f.mu.Unlock() }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if hook != nil {
		if err := hook(ctx, c); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		return err
	}
	if hook != nil {
		c.After = true
		return hook(ctx, c)
	}
	return nil
}

func (f *fake) store(key string, body []byte, ifAbsent bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, taken := f.objects[key]; taken && ifAbsent {
		return answer(412, "PreconditionFailed")
	}
	f.version++
	f.objects[key], f.etags[key] = body, f.version
	return nil
}

func readPart(p Part) ([]byte, error) {
	if _, err := p.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(p)
	if err == nil && int64(len(body)) != p.Size {
		err = fmt.Errorf("body: expected %d bytes, read %d", p.Size, len(body))
	}
	if err == nil && object.CRC32C(body) != p.CRC32C {
		err = answer(400, "BadDigest")
	}
	return body, err
}

func (f *fake) String() string { return "fake:" }

func (f *fake) Put(ctx context.Context, key string, p Part, ifAbsent bool) error {
	return f.do(ctx, "put", key, func() error {
		body, err := readPart(p)
		if err != nil {
			return err
		}
		return f.store(key, body, ifAbsent)
	})
}

func (f *fake) Get(ctx context.Context, key string, offset, n int64, etag string) (r *Response, err error) {
	err = f.do(ctx, "get", key, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		body, ok := f.objects[key]
		switch {
		case !ok:
			return answer(404, "NoSuchKey")
		case etag != "" && etag != fmt.Sprint(f.etags[key]):
			return answer(412, "PreconditionFailed")
		case offset >= int64(len(body)):
			return answer(416, "InvalidRange")
		}
		r = &Response{ETag: fmt.Sprint(f.etags[key]), Length: int64(len(body))}
		part := body
		if !f.noRange {
			part = body[offset:min(offset+n, int64(len(body)))]
			r.Range = fmt.Sprintf("bytes %d-%d/%d", offset, offset+int64(len(part))-1, len(body))
			r.Length = int64(len(part))
		}
		if f.cut != nil {
			part = part[:f.cut(len(part))]
		}
		r.Body = io.NopCloser(bytes.NewReader(part))
		return nil
	})
	return r, err
}

func (f *fake) Head(ctx context.Context, key string) (i object.Info, err error) {
	err = f.do(ctx, "head", key, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		body, ok := f.objects[key]
		if !ok {
			return answer(404, "")
		}
		i = object.Info{Size: int64(len(body)), ModifiedUnixMilli: time.Now().UnixMilli()}
		if !f.noCRC {
			i.CRC32C, i.HasCRC = object.CRC32C(body), true
		}
		return nil
	})
	return i, err
}

func (f *fake) ListPage(ctx context.Context, prefix, after string, n int) (page []object.Info, err error) {
	err = f.do(ctx, "list", prefix, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for key, body := range f.objects {
			if strings.HasPrefix(key, prefix) && key > after {
				page = append(page, object.Info{Key: key, Size: int64(len(body))})
			}
		}
		slices.SortFunc(page, func(a, b object.Info) int { return strings.Compare(a.Key, b.Key) })
		page = page[:min(n, len(page))]
		return nil
	})
	return page, err
}

func (f *fake) DeleteBatch(ctx context.Context, keys []string) (map[string]error, error) {
	errs := map[string]error{}
	err := f.do(ctx, "delete", keys[0], func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(keys) > object.BatchKeysMax {
			return answer(400, "MalformedXML")
		}
		for _, key := range keys {
			if f.keyErrors != nil {
				f.calls["delete "+key]++
				if err := f.keyErrors(key, f.calls["delete "+key]); err != nil {
					errs[key] = err
					continue
				}
			}
			delete(f.objects, key)
		}
		return nil
	})
	return errs, err
}

func (f *fake) CreateUpload(ctx context.Context, key string) (id string, err error) {
	err = f.do(ctx, "create", key, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.version++
		id = fmt.Sprint(key, "#", f.version)
		f.uploads[id], f.begun[id] = map[int][]byte{}, time.Now()
		return nil
	})
	return id, err
}

func (f *fake) UploadPart(ctx context.Context, key, id string, number int, p Part) (u Uploaded, err error) {
	err = f.do(ctx, "part", key, func() error {
		body, err := readPart(p)
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.uploads[id] == nil {
			return answer(404, "NoSuchUpload")
		}
		f.uploads[id][number] = body
		u = Uploaded{Number: number, CRC32C: p.CRC32C, ETag: "e"}
		return nil
	})
	return u, err
}

func (f *fake) CompleteUpload(ctx context.Context, key, id string, parts []Uploaded, crc uint32, ifAbsent bool) error {
	return f.do(ctx, "complete", key, func() error {
		f.mu.Lock()
		stored := f.uploads[id]
		f.mu.Unlock()
		if stored == nil {
			return answer(404, "NoSuchUpload")
		}
		var body []byte
		for i, p := range parts {
			if p.Number != i+1 || i+1 < len(parts) && len(stored[p.Number]) < object.PartBytesMin {
				return answer(400, "InvalidPart")
			}
			body = append(body, stored[p.Number]...)
		}
		if object.CRC32C(body) != crc {
			return answer(400, "BadDigest")
		}
		if err := f.store(key, body, ifAbsent); err != nil {
			return err
		}
		f.mu.Lock()
		delete(f.uploads, id)
		f.mu.Unlock()
		return nil
	})
}

func (f *fake) AbortUpload(ctx context.Context, key, id string) error {
	return f.do(ctx, "abort", key, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.uploads, id)
		return nil
	})
}

func (f *fake) ListUploads(ctx context.Context, prefix string) (all []Upload, err error) {
	err = f.do(ctx, "uploads", prefix, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for id := range f.uploads {
			key, _, _ := strings.Cut(id, "#")
			all = append(all, Upload{Key: key, ID: id, Begun: f.begun[id]})
		}
		return nil
	})
	return all, err
}
