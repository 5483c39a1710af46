package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "thermocline"

// source is one parsed Go file of the tree.
type source struct {
	path string // slash-separated, from the module's root
	pkg  string // directory from the root
	test bool
	text []byte
	file *ast.File
	fset *token.FileSet
}

// tree parses every Go file of the module once.
func tree(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the module's root is not where this test expects it: %v", err)
	}
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "data" || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		out = append(out, source{path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(rel, "_test.go"), text: text, file: file, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d Go files found: the walk is broken", len(out))
	}
	return out
}

func (s source) imports() []string {
	var out []string
	for _, i := range s.file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out = append(out, p)
	}
	return out
}

// own lists what each part of the module may import of the module: the first
// prefix that matches a package decides.
var own = []struct {
	pkg     string
	allowed []string
}{
	{"wal/vfs", nil},
	{"wal/batch", nil},
	{"wal/transport", nil},
	{"wal", []string{"wal"}},
	{"metadata", []string{"metadata"}},
	{"tiering/object", []string{"tiering/object"}},
	{"tiering/format", []string{"wal/batch", "metadata"}},
	{"tiering", []string{"wal/batch", "metadata", "tiering"}},
	{"index", []string{"wal/batch", "metadata", "tiering/object", "tiering/format"}},
	{"ingest/partition", []string{"wal", "wal/batch", "wal/shard", "metadata", "tiering/format"}},
	{"ingest", []string{"ingest", "wal", "index", "tiering", "metadata"}},
	{"localstack", []string{""}},
	{"cmd", []string{""}},
}

// outside lists libraries that only the named packages may import (tests of
// other packages may use the client libraries too).
var outside = []struct {
	library string
	allowed []string
	tests   bool
}{
	{"github.com/twmb/franz-go/pkg/kmsg", []string{"ingest", "localstack", "cmd"}, true},
	{"github.com/twmb/franz-go/pkg/kfake", nil, true},
	{"github.com/twmb/franz-go", []string{"ingest", "cmd", "localstack"}, true},
	{"github.com/aws/", []string{"tiering/object/s3", "localstack/s3"}, false},
	{"github.com/minio/", []string{"tiering/object/minio"}, false},
	{"github.com/versity/", []string{"localstack/s3"}, false},
	{"go.etcd.io/etcd/client", []string{"metadata/etcd", "localstack/etcd", "cmd"}, true},
	{"go.etcd.io/etcd/server", []string{"localstack/etcd"}, false},
	{"go.etcd.io/raft", []string{"wal/shard", "wal/transport", "localstack/sim"}, true},
	{"go.opentelemetry.io/", []string{"cmd"}, false},
	{"github.com/prometheus/", []string{"cmd"}, false},
	{"github.com/spf13/cobra", []string{"cmd"}, false},
}

func TestImportDirections(t *testing.T) {
	for _, s := range tree(t) {
		for _, imp := range s.imports() {
			if rel, ok := strings.CutPrefix(imp, module+"/"); ok {
				if !s.test && !mayImport(s.pkg, rel) {
					t.Errorf("%s imports %s: %s may not depend on it", s.path, imp, s.pkg)
				}
				continue
			}
			if msg := outsideRule(s, imp); msg != "" {
				t.Error(msg)
			}
		}
	}
}

func mayImport(pkg, rel string) bool {
	for _, rule := range own {
		if !under(pkg, rule.pkg) {
			continue
		}
		if under(rel, pkg) || under(rel, rule.pkg) {
			return true
		}
		for _, a := range rule.allowed {
			if a == "" || under(rel, a) {
				return true
			}
		}
		return false
	}
	return false
}

func outsideRule(s source, imp string) string {
	for _, rule := range outside {
		if !strings.HasPrefix(imp, rule.library) {
			continue
		}
		if s.test && rule.tests {
			return ""
		}
		for _, a := range rule.allowed {
			if under(s.pkg, a) {
				return ""
			}
		}
		return fmt.Sprintf("%s imports %s, which belongs in %v only", s.path, imp, rule.allowed)
	}
	return ""
}

func under(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }

// TestPureCore keeps clocks, files, sockets, goroutines and global randomness
// out of the packages that the simulator replays.
func TestPureCore(t *testing.T) {
	pure := map[string][]string{
		"ingest/group":        nil,
		"ingest/group/assign": nil,
		"ingest/partition":    nil,
		"wal/shard":           {"runner.go", "clock.go"},
		"wal":                 {"writer.go"},
	}
	refused := map[string]bool{"net": true, "os": true, "math/rand": true, "math/rand/v2": true, "crypto/rand": true}
	for _, s := range tree(t) {
		except, ok := pure[s.pkg]
		if !ok || s.test || excepted(s.path, except) {
			continue
		}
		for _, imp := range s.imports() {
			if refused[imp] {
				t.Errorf("%s imports %s: the deterministic core may not", s.path, imp)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine: the deterministic core may not", s.fset.Position(n.Pos()))
			case *ast.CallExpr:
				if name := callName(n); name == "time.Now" || name == "time.Since" || name == "time.After" {
					t.Errorf("%s calls %s: the deterministic core may not", s.fset.Position(n.Pos()), name)
				}
			}
			return true
		})
	}
}

func excepted(path string, names []string) bool {
	for _, n := range names {
		if filepath.Base(path) == n || strings.HasPrefix(filepath.Base(path), strings.TrimSuffix(n, ".go")+"_") {
			return true
		}
	}
	return false
}

func callName(c *ast.CallExpr) string {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return id.Name + "." + sel.Sel.Name
}

func TestFormatted(t *testing.T) {
	for _, s := range tree(t) {
		want, err := format.Source(s.text)
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
		} else if !bytes.Equal(want, s.text) {
			t.Errorf("%s is not formatted: run make fmt", s.path)
		}
	}
}

func TestForbiddenCalls(t *testing.T) {
	for _, s := range tree(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := callName(c)
			switch {
			case s.test && name == "time.Sleep":
				t.Errorf("%s sleeps: wait for the condition instead", s.fset.Position(c.Pos()))
			case s.test && (name == "t.Skip" || name == "t.Skipf" || name == "t.SkipNow"):
				t.Errorf("%s skips: a check that lacks something fails and says what to install", s.fset.Position(c.Pos()))
			case !s.test && !under(s.pkg, "cmd") && (name == "os.Exit" || name == "log.Fatal" || name == "log.Fatalf"):
				t.Errorf("%s ends the process: only cmd may", s.fset.Position(c.Pos()))
			case !s.test && !under(s.pkg, "cmd") && (name == "fmt.Println" || name == "fmt.Printf"):
				t.Errorf("%s prints: return or log instead", s.fset.Position(c.Pos()))
			}
			return true
		})
	}
}

func TestPackageNames(t *testing.T) {
	refused := map[string]bool{"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "misc": true, "base": true, "types": true}
	for _, s := range tree(t) {
		if name := strings.TrimSuffix(s.file.Name.Name, "_test"); refused[name] {
			t.Errorf("%s: a package is named by what it holds, not %q", s.path, name)
		}
	}
}

func TestDocumentedExports(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range tree(t) {
		if s.file.Doc != nil {
			documented[s.pkg] = true
		}
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			undocumented(s, d, func(pos token.Pos, name string) {
				t.Errorf("%s: exported %s has no comment", s.fset.Position(pos), name)
			})
		}
	}
	for _, s := range tree(t) {
		if !documented[s.pkg] {
			t.Errorf("package %s has no package comment", s.pkg)
			documented[s.pkg] = true
		}
	}
}

func undocumented(s source, d ast.Decl, report func(token.Pos, string)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			report(d.Pos(), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
					report(spec.Pos(), spec.Name.Name)
				}
			case *ast.ValueSpec:
				if spec.Names[0].IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
					report(spec.Pos(), spec.Names[0].Name)
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.IsExported()
	}
	return true
}

// Sizes that keep a reader's head above water. The exceptions are one-switch
// dispatchers, codecs and tables, named here.
const (
	maxFunctionLines = 70
	maxFileLines     = 1000
)

var longFunctions = map[string]bool{}

func TestSizes(t *testing.T) {
	for _, s := range tree(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines; split it (limit %d)", s.path, n, maxFileLines)
		}
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if lines > maxFunctionLines && !longFunctions[s.path+":"+f.Name.Name] {
				t.Errorf("%s: %s has %d lines; split it (limit %d)", s.fset.Position(f.Pos()), f.Name.Name, lines, maxFunctionLines)
			}
		}
	}
}

// TestArchitectureIsTrue checks the names that ARCHITECTURE.md gives: each test
// exists, and each package folder of its first table.
func TestArchitectureIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	functions, folders := map[string]bool{}, map[string]bool{}
	for _, s := range tree(t) {
		folders[s.pkg] = true
		folders[strings.SplitN(s.pkg, "/", 2)[0]] = true
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions[f.Name.Name] = true
			}
		}
	}
	names := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+`).FindAllString(string(text), -1)
	if len(names) < 10 {
		t.Fatalf("only %d tests are named", len(names))
	}
	for _, n := range names {
		if !functions[n] {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", n)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		if !folders[m[1]] {
			t.Errorf("ARCHITECTURE.md names the folder %s, which does not exist", m[1])
		}
	}
}
