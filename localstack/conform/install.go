package conform

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// installer knows where things are.
type installer struct {
	ctx context.Context
	// cache is kept between runs: what registries gave, and what was built.
	cache string
	// sources is the folder clients/.
	sources string
}

// CacheDir is where downloads are kept.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "thermocline", "conform"), nil
}

// need reports a tool that is missing.
func need(tool, debian string) error {
	if _, err := exec.LookPath(tool); err != nil {
		return fmt.Errorf("%s is missing: install it (Debian: apt-get install %s)", tool, debian)
	}
	return nil
}

// run runs a command in a folder and puts what it prints into the error.
func (in installer) run(dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(in.ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// installing is held by one fetch at a time: two clients share an environment.
var installing sync.Mutex

// once runs fetch unless it has succeeded before with the same pins.
func (in installer) once(name, pins string, fetch func(dir string) error) (string, error) {
	installing.Lock()
	defer installing.Unlock()
	dir := filepath.Join(in.cache, name)
	stamp := filepath.Join(dir, "complete")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == pins {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := fetch(dir); err != nil {
		return "", fmt.Errorf("installing %s: %w", name, err)
	}
	return dir, os.WriteFile(stamp, []byte(pins), 0o644)
}

// installGo builds a driver of the Go module below clients/go.
func installGo(name string) func(installer) (command, error) {
	return func(in installer) (command, error) {
		if name == "kcat" {
			if err := need("kcat", "kcat"); err != nil {
				return command{}, err
			}
		}
		binary := filepath.Join(in.cache, "bin", name)
		err := in.run(filepath.Join(in.sources, "go"), []string{"CGO_ENABLED=0"}, "go", "build", "-o", binary, "./"+name)
		return command{args: []string{binary}}, err
	}
}

const javaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>conform</groupId><artifactId>java</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>%s</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>%s</version></dependency>
</dependencies></project>
`

// installJava fetches a version of Apache Kafka's client and compiles the one
// driver against it.
func installJava(version string) func(installer) (command, error) {
	return func(in installer) (command, error) {
		for _, tool := range []string{"java", "javac", "mvn"} {
			if err := need(tool, "openjdk-17-jdk-headless maven"); err != nil {
				return command{}, err
			}
		}
		pom := fmt.Sprintf(javaPOM, version, slf4jVersion)
		libs, err := in.once("java-"+version, pom, func(dir string) error {
			path := filepath.Join(dir, "pom.xml")
			if err := os.WriteFile(path, []byte(pom), 0o644); err != nil {
				return err
			}
			return in.run(dir, nil, "mvn", "-q", "-B", "-f", path, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
		})
		if err != nil {
			return command{}, err
		}
		classes := filepath.Join(in.cache, "classes-"+version)
		sources, err := filepath.Glob(filepath.Join(in.sources, "java", "*.java"))
		if err != nil {
			return command{}, err
		}
		jars := filepath.Join(libs, "*")
		err = in.run(libs, nil, append([]string{"javac", "-nowarn", "-cp", jars, "-d", classes}, sources...)...)
		return command{args: []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-cp", jars + ":" + classes, "Driver"}}, err
	}
}

// installPython makes one virtual environment for both Python clients.
func installPython(name string) func(installer) (command, error) {
	return func(in installer) (command, error) {
		if err := need("python3", "python3-venv"); err != nil {
			return command{}, err
		}
		pins := []string{"confluent-kafka==" + confluent, "kafka-python==" + kafkaPython, "zstandard==" + pyZstandard,
			"lz4==" + pyLZ4, "python-snappy==" + pySnappy}
		dir, err := in.once("python", strings.Join(pins, "\n"), func(dir string) error {
			if err := in.run(dir, nil, "python3", "-m", "venv", dir); err != nil {
				return err
			}
			return in.run(dir, nil, append([]string{filepath.Join(dir, "bin", "pip"), "install", "-q", "--only-binary=:all:"}, pins...)...)
		})
		return command{args: []string{filepath.Join(dir, "bin", "python"), filepath.Join(in.sources, "python", name+".py")}}, err
	}
}

// installNode fetches KafkaJS, and codecs for it: it has only gzip itself.
func installNode(in installer) (command, error) {
	for _, tool := range []string{"node", "npm"} {
		if err := need(tool, "nodejs npm"); err != nil {
			return command{}, err
		}
	}
	pins := []string{"kafkajs@" + kafkajs, "kafkajs-snappy@" + kafkajsSnappy, "lz4js@" + lz4js, "@bokuweb/zstd-wasm@" + zstdWasm}
	dir, err := in.once("kafkajs", strings.Join(pins, "\n"), func(dir string) error {
		return in.run(dir, nil, append([]string{"npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts"}, pins...)...)
	})
	return command{args: []string{"node", filepath.Join(in.sources, "kafkajs", "driver.js")}, env: []string{"NODE_PATH=" + filepath.Join(dir, "node_modules")}}, err
}
