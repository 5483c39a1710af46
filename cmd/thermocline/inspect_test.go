package main

import (
	"bytes"
	"context"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/tiering/object/file"
	"thermocline/wal"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
	"thermocline/wal/vfs"
)

// damage flips one bit of a file.
func damage(t *testing.T, path string, offset int64) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[offset] ^= 1
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantDamage runs inspect on something damaged: it fails, and says where, in
// both forms of output.
func wantDamage(t *testing.T, where string, args ...string) {
	t.Helper()
	for _, form := range [][]string{nil, {"--json"}} {
		out, err := cli(t, "", append(append([]string{"inspect"}, args...), form...)...)
		if err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Fatalf("inspect %v: expected an error that tells of damage, found %v\n%s", args, err, out)
		}
		if !regexp.MustCompile(where).MatchString(out) {
			t.Fatalf("inspect %v: expected %q in\n%s", args, where, out)
		}
	}
}

// dataDirectory makes a broker's data directory with a log of one shard.
func dataDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fs := vfs.OS(dir)
	if err := fs.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	log, _, err := wal.Open(fs, "wal", wal.Options{FileBytes: 64 << 10, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := shard.InitialSnapshot(fs, "wal", 7, []uint64{1, 2, 3}, partition.NewSet(partition.Options{Shard: 7}))
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("p"), 5000)
	crc := crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
	appends := []*wal.Append{first}
	for i := uint64(2); i < 6; i++ {
		appends = append(appends, &wal.Append{Shard: 7, Entries: []wal.Entry{{Index: i, Term: 1, Descriptor: []byte("d"), Payload: payload, PayloadCRC: crc}}})
	}
	for _, a := range appends {
		a.Done = func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		if err := log.Commit([]*wal.Append{a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil { // writes the closing record
		t.Fatal(err)
	}
	return dir
}

func TestInspectWAL(t *testing.T) {
	dir := dataDirectory(t)
	for _, arg := range []string{dir, filepath.Join(dir, "wal")} {
		out := mustCLI(t, "", "inspect", "wal", arg, "--records")
		for _, want := range []string{"shard 7 index 5 term 1", "snapshot-pointer", "closing", "2-5", "20000"} {
			if !strings.Contains(out, want) {
				t.Fatalf("expected %q in\n%s", want, out)
			}
		}
	}
	var w walReport
	inspectJSON(t, &w, "wal", dir)
	if len(w.Shards) != 1 || w.Shards[0].Entries != 4 || w.Shards[0].LastIndex != 5 || len(w.Snapshots) != 1 || len(w.Damage) != 0 {
		t.Fatalf("inspect wal: %+v", w)
	}
	if _, err := cli(t, "", "inspect", "wal", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no write-ahead log") {
		t.Fatalf("a directory without a log: %v", err)
	}
	name := filepath.Join(dir, "wal", w.Files[0].File)
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(bytes.Index(raw, []byte("ppp"))) + 100
	damage(t, name, at)
	wantDamage(t, regexp.QuoteMeta(w.Files[0].File)+`[^\n]*\n?[^\n]*offset`, "wal", dir)
}

func TestInspectSnapshot(t *testing.T) {
	dir := dataDirectory(t)
	paths, err := filepath.Glob(filepath.Join(dir, "wal", "*.snap"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("snapshot files: %v, %v", paths, err)
	}
	var s snapshotReport
	inspectJSON(t, &s, "snapshot", paths[0])
	if s.Shard != 7 || s.Index != 1 || len(s.Voters) != 3 || s.State == nil {
		t.Fatalf("inspect snapshot: %+v", s)
	}
	if out := mustCLI(t, "", "inspect", "manifest", dir); !strings.Contains(out, "shard 7: 0 segments") {
		t.Fatalf("inspect manifest printed\n%s", out)
	}
	info, err := os.Stat(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < info.Size(); at += 7 {
		damage(t, paths[0], at)
		wantDamage(t, regexp.QuoteMeta(filepath.Base(paths[0])), "snapshot", paths[0])
		damage(t, paths[0], at) // the same bit again: whole
	}
	damage(t, paths[0], info.Size()/2)
	wantDamage(t, regexp.QuoteMeta(filepath.Base(paths[0])), "wal", dir)
	wantDamage(t, regexp.QuoteMeta(filepath.Base(paths[0])), "manifest", dir)
}

// segment builds a segment of one partition with the records [first, first+n).
func segment(t *testing.T, firstIndex, lastIndex uint64, first int64, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := format.NewWriter(&out, format.SegmentInfo{Cluster: "c", Shard: 3, Term: 2, FirstIndex: firstIndex, LastIndex: lastIndex})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.BeginPartition(1, format.Key{Topic: metadata.TopicID{1}}, "flights"); err != nil {
		t.Fatal(err)
	}
	b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: first})
	for i := range n {
		b.Add(int64(1000+i), nil, []byte("event"))
	}
	if err := w.Add(b.Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestInspectSegmentVerifiesEveryByte(t *testing.T) {
	raw := segment(t, 2, 5, 0, 10)
	path := filepath.Join(t.TempDir(), "copy.seg")
	write := func() {
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if out := mustCLI(t, "", "inspect", "segment", path); !strings.Contains(out, "flights/0") || !strings.Contains(out, "0-9") {
		t.Fatalf("inspect segment printed\n%s", out)
	}
	for at := range raw {
		damage(t, path, int64(at))
		if out, err := cli(t, "", "inspect", "segment", path); err == nil {
			t.Fatalf("a flipped bit at %d of %d went unnoticed:\n%s", at, len(raw), out)
		}
		damage(t, path, int64(at))
	}
	damage(t, path, 60)
	wantDamage(t, `bytes at 0: expected crc .*, found`, "segment", path)
}

func TestInspectManifestOfABucket(t *testing.T) {
	dir := t.TempDir()
	store, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	put := func(first, last uint64, offset int64) string {
		raw := segment(t, first, last, offset, 10)
		key := format.Name{Kind: format.KindSegment, Shard: 3, Term: 2, Number: first, Random: first}.Key()
		if err := store.Put(context.Background(), format.ObjectKey("c", key), bytes.NewReader(raw), object.PutOptions{CRC32C: object.CRC32C(raw)}); err != nil {
			t.Fatal(err)
		}
		return key
	}
	url := "file://" + dir
	if _, err := cli(t, "", "inspect", "manifest", "--store", url); err == nil || !strings.Contains(err.Error(), "holds no segment") {
		t.Fatalf("an empty bucket: %v", err)
	}
	key := put(2, 5, 0)
	put(6, 9, 10)
	out := mustCLI(t, "", "inspect", "manifest", "--store", url, "--verify")
	if !strings.Contains(out, "shard 3: 2 segments") || !strings.Contains(out, "20 records, tiered up to index 9") || !strings.Contains(out, "\nverified 2 objects, ") {
		t.Fatalf("inspect manifest printed\n%s", out)
	}
	if regexp.MustCompile(`(?m)^0 |00000000  seg|  -  seg`).MatchString(out) {
		t.Fatalf("inspect manifest printed numbers that it does not know\n%s", out)
	}
	if out := mustCLI(t, "", "inspect", "manifest", "--store", url); !regexp.MustCompile(`(?m)^-  +2-5 .*  -  +segments/`).MatchString(out) || strings.Contains(out, "verified") {
		t.Fatalf("inspect manifest without --verify printed\n%s", out)
	}
	if _, err := cli(t, "", "inspect", "manifest", dir, "--verify"); err == nil || !strings.Contains(err.Error(), "--store") {
		t.Fatalf("--verify without a bucket: %v", err)
	}
	if out := mustCLI(t, "", "inspect", "segment", key, "--store", url); !strings.Contains(out, "c/"+key) {
		t.Fatalf("inspect segment by its row's key printed\n%s", out)
	}
	put(12, 13, 30)
	wantDamage(t, "expected a segment from index 10 on, found the next one at 12", "manifest", "--store", url)
	wantDamage(t, regexp.QuoteMeta(key), "manifest", "--store", url, damagedObject(t, dir, key))
}

// damagedObject flips a bit of the object's data and returns the flag that finds it.
func damagedObject(t *testing.T, dir, key string) string {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasPrefix(filepath.Base(path), strings.TrimSuffix(filepath.Base(key), ".seg")) {
			damage(t, path, 40)
			found = true
		}
		return err
	})
	if err != nil || !found {
		t.Fatalf("no file of %s below %s: %v", key, dir, err)
	}
	return "--verify"
}

// Another cluster than ours tells less, which is no error.
func TestInspectPartitionOfAnotherCluster(t *testing.T) {
	b := fakeCluster(t)
	mustCLI(t, "one\ntwo\n", "produce", "seeded", "-q", "-b", b)
	var total int64
	for _, p := range []string{"seeded/0", "seeded/1", "seeded/2"} {
		var r partitionReport
		inspectJSON(t, &r, "partition", p, "-b", b)
		if r.HW == nil || r.LogStart == nil {
			t.Fatalf("%s: %+v", p, r)
		}
		total += *r.HW - *r.LogStart
	}
	if total != 2 {
		t.Fatalf("expected 2 records, found %d", total)
	}
	if out := mustCLI(t, "", "inspect", "partition", "seeded/0", "-b", b); !strings.Contains(out, "cold bytes    -") {
		t.Fatalf("inspect partition printed\n%s", out)
	}
	for _, arg := range []string{"seeded/9", "nothing/0", "seeded", "seeded/x"} {
		if _, err := cli(t, "", "inspect", "partition", arg, "-b", b); err == nil {
			t.Fatalf("inspect partition %s succeeded", arg)
		}
	}
}
