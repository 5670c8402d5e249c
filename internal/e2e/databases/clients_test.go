//go:build unix

package databases

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// client is a session with a server.
type client interface {
	// server returns the port of the server at the other end.
	server() (string, error)
	// work reads what it wrote before, and writes something new.
	work() error
}

// redis is a client of the inline commands of Redis.
type redis struct {
	net.Conn
	in   *bufio.Reader
	key  string
	last int
}

func newRedis(t *testing.T, conn net.Conn, key string) *redis {
	t.Cleanup(func() { _ = conn.Close() })
	return &redis{Conn: conn, in: bufio.NewReader(conn), key: key}
}

// do sends a command and returns the answer: a status, a number, a string, or the last
// string of a list.
func (r *redis) do(command string) (string, error) {
	_ = r.SetDeadline(time.Now().Add(procs.Patience))
	if _, err := io.WriteString(r, command+"\r\n"); err != nil {
		return "", err
	}
	return r.answer()
}

func (r *redis) answer() (string, error) {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r.in, text)
		return string(text[:n]), err
	case '*':
		n, err := strconv.Atoi(line[1:])
		last := ""
		for ; n > 0 && err == nil; n-- {
			last, err = r.answer()
		}
		return last, err
	}
	return "", fmt.Errorf("redis: %s", line)
}

func (r *redis) server() (string, error) { return r.do("CONFIG GET port") }

func (r *redis) work() error {
	got, err := r.do("GET " + r.key)
	if err != nil {
		return err
	}
	if want := strconv.Itoa(r.last); r.last > 0 && got != want {
		return fmt.Errorf("%s is %q, want %q", r.key, got, want)
	}
	r.last++
	_, err = r.do(fmt.Sprintf("SET %s %d", r.key, r.last))
	return err
}

// postgres is a psql that runs as long as its session.
type postgres struct {
	in  io.Writer
	out *bufio.Reader
	pid string
}

func newPostgres(t *testing.T, addr string) (*postgres, error) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(program(t, "psql"), "psql"), "-XAtq", "host="+host+" port="+port+" user=postgres dbname=postgres sslmode=disable connect_timeout=10")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &postgres{in: in, out: bufio.NewReader(out)}
	p.pid, err = p.ask("SELECT pg_backend_pid();")
	return p, err
}

// ask returns the one line of an answer. A psql whose session is lost ends, because its
// input is no terminal.
func (p *postgres) ask(query string) (string, error) {
	if _, err := io.WriteString(p.in, query+"\n"); err != nil {
		return "", err
	}
	line, err := p.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (p *postgres) server() (string, error) { return p.ask("SHOW port;") }

func (p *postgres) work() error {
	pid, err := p.ask("SELECT pg_backend_pid();")
	if err == nil && pid != p.pid {
		err = fmt.Errorf("process %s at the other end, before %s", pid, p.pid)
	}
	return err
}
