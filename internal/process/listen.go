package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ringway/ringway/internal/settings"
)

// maxSocketPath is the size of the shortest sockaddr_un of the supported systems without
// the zero byte at the end (104 bytes on macOS and BSD, 108 on Linux).
const maxSocketPath = 103

// Listen binds addr: host:port, or unix:PATH.
//
// Only the user of this process can use a socket, from its first moment on. A socket that a
// dead process left behind is replaced; that of a running process is an error. Closing the
// listener removes the socket.
func Listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, settings.SocketPrefix); ok {
		return listenSocket(path)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, UnboundRemedy(err))
	}
	return ln, nil
}

// UnboundRemedy is what an operator does about an address that cannot be bound.
func UnboundRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no interface of this host has this address: correct it"
	case errors.Is(err, syscall.EACCES):
		return "a port below 1024 needs CAP_NET_BIND_SERVICE, or a socket of systemd"
	}
	return "is another process on this port?"
}

// GossipError adds the setting to an error of membership.New: a library that binds the
// gossip address does not know how this process was given it.
func GossipError(err error) error {
	if bind, ok := errors.AsType[*net.OpError](err); ok && bind.Op == "listen" {
		remedy := UnboundRemedy(err)
		if !strings.HasSuffix(remedy, "?") {
			remedy += "."
		}
		return fmt.Errorf("%w: %s The setting is --gossip-addr", err, remedy)
	}
	return err
}

// Dial connects to addr. The network is tcp for host:port and unix for unix:PATH.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	if path, ok := strings.CutPrefix(addr, settings.SocketPrefix); ok {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// listenSocket creates the socket in a directory that only this user can enter, restricts
// its mode and links it to its final path. A socket created directly at that path would be
// open to other users until chmod, and the umask applies to the whole process.
func listenSocket(path string) (_ net.Listener, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".rw") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("%w: the directory must be there and writable", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made := filepath.Join(dir, "s")
	if longest := max(len(made), len(path)); longest > maxSocketPath {
		return nil, fmt.Errorf("the path of a socket has at most %d characters, this needs %d: choose a shorter path", maxSocketPath, longest)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // it would remove the temporary name
	if err := errors.Join(os.Chmod(made, 0o600), linkSocket(made, path)); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	// made is the same file. path is missing while another process, in linkSocket, looks whether
	// it is stale.
	stat, err := os.Lstat(made)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return &socket{UnixListener: ln, path: path, stat: stat}, nil
}

// linkSocket links the socket made to path. Unlike a rename, a link never replaces a file.
func linkSocket(made, path string) error {
	stale := made + ".stale"
	for range 3 { // another process may do the same
		if err := os.Link(made, path); !errors.Is(err, fs.ErrExist) {
			return err
		}
		stat, err := os.Lstat(path)
		if err == nil && stat.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("%s is there and is no socket: move it away, or choose another path", path)
		}
		if alive(path) {
			break
		}
		// Since the check, another process may have replaced the file that is moved.
		if err := os.Rename(path, stale); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if alive(stale) {
			_ = os.Link(stale, path) // fails if a third process has created a socket there
			break
		}
		if err := os.Remove(stale); err != nil {
			return err
		}
	}
	return fmt.Errorf("another process serves %s: stop it, or choose another path", path)
}

// alive reports whether a process may serve the socket. Only a refused connection or a
// missing file proves that none does.
func alive(path string) bool {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// socket removes its file when it is closed.
type socket struct {
	*net.UnixListener
	path string
	stat fs.FileInfo
}

// Addr returns the address as in the settings, with the prefix unix:.
func (s *socket) Addr() net.Addr {
	return &net.UnixAddr{Name: settings.SocketPrefix + s.path, Net: "unix"}
}

func (s *socket) Close() error {
	if stat, err := os.Lstat(s.path); err == nil && os.SameFile(stat, s.stat) {
		_ = os.Remove(s.path) // the next start replaces a socket that is left
	}
	return s.UnixListener.Close()
}
