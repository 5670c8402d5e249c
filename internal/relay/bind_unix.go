//go:build linux || darwin

package relay

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// backlog is how many connections may wait to be accepted. The kernel's own bound is
// usually lower.
const backlog = 1<<16 - 1

// bind binds a TCP address without listening on it: connections are refused until listen
// is called. Package net cannot bind without listening.
func bind(addr string) (_ net.Listener, listen func() error, err error) {
	to, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	fd, err := boundSocket(to)
	if err != nil {
		return nil, nil, fmt.Errorf("bind %s: %w", to, err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer func() { err = errors.Join(err, file.Close()) }()
	ln, err := net.FileListener(file) // uses a copy of the descriptor
	if err != nil {
		return nil, nil, err
	}
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, ln.Close())
	}
	return ln, func() (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			// Connections inherit it: what is left of them must not keep the next process from the address.
			if err = os.NewSyscallError("setsockopt", reuse(int(fd))); err == nil {
				err = syscall.Listen(int(fd), backlog)
			}
		})
		return errors.Join(controlErr, err)
	}, nil
}

// boundSocket returns a socket that is bound as package net would bind it: an unspecified
// address means IPv6 and IPv4, if there is IPv6.
func boundSocket(to *net.TCPAddr) (fd int, err error) {
	if to.IP != nil && !to.IP.IsUnspecified() {
		return bindSocket(to)
	}
	if fd, err = bindSocket(&net.TCPAddr{IP: net.IPv6unspecified, Port: to.Port}); err == nil || errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return fd, err
	}
	return bindSocket(&net.TCPAddr{IP: net.IPv4zero, Port: to.Port})
}

func bindSocket(to *net.TCPAddr) (fd int, err error) {
	family := syscall.AF_INET6
	var name syscall.Sockaddr
	if ip4 := to.IP.To4(); ip4 != nil {
		family = syscall.AF_INET
		name = &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(ip4)}
	} else {
		name6 := &syscall.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP)}
		if to.Zone != "" {
			link, err := net.InterfaceByName(to.Zone)
			if err != nil {
				return -1, fmt.Errorf("zone %s: %w", to.Zone, err)
			}
			name6.ZoneId = uint32(link.Index)
		}
		name = name6
	}
	syscall.ForkLock.RLock() // so that no child process inherits the socket
	if fd, err = syscall.Socket(family, syscall.SOCK_STREAM, 0); err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	var steps []error
	if family == syscall.AF_INET6 && to.IP.IsUnspecified() {
		steps = append(steps, os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0)))
	}
	// With SO_REUSEADDR two processes could bind the address while none listens, and the second one
	// would fail when it is ready. Without it, what is left of connections keeps a restarted process
	// from the address.
	err = syscall.Bind(fd, name)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err = reuse(fd); err == nil {
			err = syscall.Bind(fd, name)
		}
	}
	steps = append(steps, os.NewSyscallError("bind", err), os.NewSyscallError("set nonblocking", syscall.SetNonblock(fd, true)))
	if err := errors.Join(steps...); err != nil {
		return -1, errors.Join(err, os.NewSyscallError("close", syscall.Close(fd)))
	}
	return fd, nil
}

func reuse(fd int) error {
	return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
}
