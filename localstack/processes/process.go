package processes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to stop by itself.
const stopTimeout = 15 * time.Second

// Process is one child process with its log.
type Process struct {
	Name    string
	LogFile string
	cmd     *exec.Cmd
	done    chan struct{}
	err     error
}

// start runs binary with args; output goes to a log file in dir that later
// starts of the same name append to.
func start(name, binary, dir string, env []string, args ...string) (*Process, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &Process{Name: name, LogFile: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	// A child must not outlive the test that made it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("processes: starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) failure() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return fmt.Errorf("%w (see %s)", p.err, p.LogFile)
}

// Kill ends the process at once, as a crash would, and waits for its end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Pause stops the process from running (SIGSTOP); Continue lets it go on.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a paused process run on.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

func (p *Process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// Stop asks the process to stop and waits; one that does not within 15 s is
// killed and reported.
func (p *Process) Stop() error {
	p.terminate()
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		_ = p.Kill()
		return fmt.Errorf("processes: %s did not stop within %v and was killed (see %s)", p.Name, stopTimeout, p.LogFile)
	}
}

// waitTCP waits until addr accepts connections.
func waitTCP(ctx context.Context, p *Process, addr string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("processes: %s ended early: %w", p.Name, p.failure())
		case <-ctx.Done():
			return fmt.Errorf("processes: %s does not listen on %s (see %s): %w", p.Name, addr, p.LogFile, ctx.Err())
		case <-tick.C:
		}
	}
}

// Run starts any process of the binary and waits until addr accepts connections.
func Run(ctx context.Context, name, binary, dir, addr string, args ...string) (*Process, error) {
	p, err := start(name, binary, dir, nil, args...)
	if err != nil {
		return nil, err
	}
	if err := waitTCP(ctx, p, addr); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}
