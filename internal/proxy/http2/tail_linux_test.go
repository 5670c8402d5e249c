package http2

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
)

// The system of the server still holds a part of the answer when the server has nothing more to
// send. Whatever the client sends to a socket that was closed destroys that part.
func TestAServerThatGoesAwayCutsNothingOffItsLastAnswer(t *testing.T) {
	for range 5 { // on a busy machine the client may have all before the server knows that all was sent
		if shown := readLastAnswer(t); shown {
			return
		}
	}
	t.Error("the system held no part of the answer when the server had sent all")
}

// readLastAnswer reads an answer whose server goes away meanwhile. It returns false if the client had
// everything when the server had nothing more to send, which shows nothing.
func readLastAnswer(t *testing.T) (shown bool) {
	const size = 1 << 20
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	// Not later: a window that was announced must not shrink.
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<10) }), err)
	}}
	client, err := dialer.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.(*net.TCPConn).SetWriteBuffer(2 * size)
	cfg := small
	cfg.Progress = 10 * time.Second
	cfg.Serve = func(s *Stream) {
		defer s.Close()
		_ = s.Send(ok200, false)
		_, _ = s.Write(make([]byte, size), true)
	}
	c := NewServer(nc, cfg, nil)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		if err := c.Run(); err != ErrClosed {
			t.Error(err)
		}
	}()
	p := &peer{t: t, nc: client}
	p.encoder = hpack.NewEncoder(&p.block)
	p.say(appendSettings([]byte(Preface), setting{settingInitialWindow, 2 * size}))
	p.grant(0, 2*size)
	p.request(1, flagEndStream)
	received := make([]byte, 100<<10)
	if _, err := io.ReadFull(client, received); err != nil { // the answer has begun
		t.Fatal(err)
	}
	c.Shutdown()
	p.say(appendPing(nil, flagAck, shutdownPing))
	for sent := false; !sent; { // by the server; the system may hold less than the answer
		piece := make([]byte, 1<<10)
		n, err := io.ReadFull(client, piece)
		if received = append(received, piece[:n]...); err != nil {
			t.Fatalf("after %d bytes: %v", len(received), err)
		}
		select {
		case <-c.flushed:
			sent = true
		case <-time.After(time.Millisecond):
		}
	}
	if len(received) >= size {
		_ = client.Close()
		<-ran
		return false
	}
	select {
	case <-ran:
		t.Error("the server has closed the connection before the client has everything")
	case <-time.After(2 * lingerTime):
	}
	p.grant(0, 1)
	rest, err := io.ReadAll(client)
	if err != nil {
		t.Errorf("after %d bytes: %v", len(received)+len(rest), err)
	}
	got, ended := 0, false
	for b := append(received, rest...); len(b) >= frameHead; {
		f := parseFrame(b)
		if b = b[frameHead:]; len(b) < f.length {
			break
		}
		if b = b[f.length:]; f.kind == frameData {
			got += f.length
			ended = f.has(flagEndStream)
		}
	}
	if got != size || !ended {
		t.Errorf("%d bytes of %d, with the end: %v", got, size, ended)
	}
	_ = client.Close()
	<-ran
	return true
}
