package activation

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

const (
	// firstFile is the first descriptor that is passed (sd_listen_fds(3)).
	firstFile = 3
	// maxSockets bounds how many are passed.
	maxSockets = 64
)

// Socket is a listening socket.
type Socket struct {
	// Name is the FileDescriptorName of the socket unit, the name of the unit without one, and
	// empty if the service manager gives no names.
	Name string
	net.Listener
}

// Sockets returns the sockets that were passed to this process, none without a service
// manager. The process must call it before it opens files, and only once. If it fails, the
// process should end.
func Sockets() ([]Socket, error) {
	defer func() {
		for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
			_ = os.Unsetenv(name) // a child process has other descriptors
		}
	}()
	p, err := parse(passed{os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")}, os.Getpid())
	if err != nil {
		return nil, err
	}
	var sockets []Socket
	for i, name := range p {
		fd := firstFile + i
		ln, err := listener(fd)
		if err != nil {
			return nil, fmt.Errorf("the descriptor %d (%q) that was passed to this process: %w: pass only sockets that listen for TCP (ListenStream=, Accept=no)", fd, name, err)
		}
		sockets = append(sockets, Socket{name, ln})
	}
	return sockets, nil
}

// passed are the values of LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES.
type passed struct{ pid, count, names string }

// parse returns the names of the descriptors, of which there is one for each, also if none has
// a name.
func parse(p passed, self int) ([]string, error) {
	if p.pid == "" || p.count == "" {
		return nil, nil
	}
	pid, err := strconv.Atoi(p.pid)
	if err != nil {
		return nil, fmt.Errorf("LISTEN_PID is %.20q and no number: let the service manager set it", p.pid)
	}
	if pid != self {
		return nil, nil // for another process
	}
	count, err := strconv.Atoi(p.count)
	if err != nil || count < 0 || count > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS is %.20q and no number from 0 to %d: let the service manager set it", p.count, maxSockets)
	}
	names := make([]string, count)
	if p.names != "" {
		given := strings.Split(p.names, ":")
		if len(given) != count {
			return nil, fmt.Errorf("LISTEN_FDNAMES has %d names for %d descriptors: let the service manager set both", len(given), count)
		}
		names = given
	}
	return names, nil
}

// listener makes a listener of a descriptor, which it closes: the listener has a copy, which
// no child process inherits.
func listener(fd int) (net.Listener, error) {
	file := os.NewFile(uintptr(fd), "passed")
	if file == nil {
		return nil, errors.New("it is not open")
	}
	ln, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if _, ok := ln.(*net.TCPListener); !ok {
		return nil, errors.Join(fmt.Errorf("it is a socket of %s", ln.Addr().Network()), ln.Close())
	}
	return ln, nil
}
