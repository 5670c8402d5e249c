package relay

import (
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// ignoreNew drops the first packet of new connections to a listening TCP socket.
func ignoreNew(socket syscall.Conn) {
	const (
		flags        = 13 // the offset of the flags in the TCP header
		syn          = 0x02
		synFinRstAck = 0x17
		whole        = 1 << 18 // accept the whole packet
	)
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: flags, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: synFinRstAck},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: syn, SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: whole},
	})
	if err != nil {
		return
	}
	code := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		code[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
	})
}

// hasPending reports whether a connection waits to be accepted.
func hasPending(socket syscall.Conn) (waits bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
	})
	return waits
}
