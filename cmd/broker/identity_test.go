package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryKeepsItsIdentity(t *testing.T) {
	dir := t.TempDir()
	first, id, err := loadIdentity(dir, 1)
	if err != nil || first == 0 {
		t.Fatalf("got %v, %v", first, err)
	}
	if err := id.join(dir, "cluster-a"); err != nil {
		t.Fatal(err)
	}
	again, id, err := loadIdentity(dir, 1)
	if err != nil || again != first {
		t.Fatalf("the second start has replica %v, the first had %v (%v)", again, first, err)
	}
	if err := id.join(dir, "cluster-b"); err == nil || !strings.Contains(err.Error(), "cluster-a") {
		t.Fatalf("joining another cluster: want an error that names its own, got %v", err)
	}
	if _, _, err := loadIdentity(dir, 2); err == nil || !strings.Contains(err.Error(), "node.id 1") {
		t.Fatalf("another broker took the directory: %v", err)
	}
	other, _, err := loadIdentity(t.TempDir(), 1)
	if err != nil || other == first {
		t.Fatalf("two directories share replica %v (%v)", other, err)
	}
}

func TestADamagedIdentityIsRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"version":2,"replica":"1","node_id":1}`, `{"version":1,"replica":"zz","node_id":1}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, identityFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadIdentity(dir, 1); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
