package validation

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// process is a program of the fleet.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// start starts a program that ends with ctx at the latest. What it says goes to a file.
func start(ctx context.Context, dir, name string, args ...string) (*process, error) {
	program, _, _ := strings.Cut(name, "-")
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	p.cmd = exec.CommandContext(ctx, filepath.Join(dir, program), args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RINGWAY_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, ownGroup()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // that it ended is all that counts
		close(p.done)
	}()
	return p, nil
}

// kill is kill -9, and waits until nothing is left.
func (p *process) kill() {
	select {
	case <-p.done: // its number may belong to somebody else by now
	default:
		_ = p.cmd.Process.Kill()
	}
	<-p.done
}

// ended is an error with the end of the log once the process has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log) // without it the message is only shorter
	return fmt.Errorf("%s ended by itself (%v): %s", p.name, p.cmd.ProcessState, text[max(0, len(text)-600):])
}

// build builds the binaries into a directory.
func build(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "github.com/ringway/ringway/cmd/relay", "github.com/ringway/ringway/cmd/worker")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries (run this inside the repository): %w\n%s", err, out)
	}
	return nil
}

// ports hands out addresses that are free for TCP and UDP. They are below the range of outgoing
// connections: between our look and the process that binds it, nothing takes one by chance.
type ports struct{ next uint32 }

const firstPort, numPorts = 20000, 12000

func (p *ports) free() (string, error) {
	for range numPorts {
		p.next++
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+(uint32(os.Getpid())*131+p.next)%numPorts)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		c, err := net.ListenPacket("udp", addr)
		_ = l.Close()
		if err != nil {
			continue
		}
		_ = c.Close()
		return addr, nil
	}
	return "", fmt.Errorf("no port of %d to %d is free", firstPort, firstPort+numPorts)
}

// await asks until the answer is nil, a process has ended, or time is up.
func await(ctx context.Context, limit time.Duration, all []*process, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		for _, p := range all {
			if ended := p.ended(); ended != nil {
				return ended
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
