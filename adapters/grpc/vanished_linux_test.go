package ringwaygrpc_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/advertise"
)

// reading reads the options of a socket before the handshake.
type reading struct {
	credentials.TransportCredentials
	read chan map[string]int
}

func (r reading) Clone() credentials.TransportCredentials { return r }

func (r reading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	options := map[string]int{}
	const userTimeout = 18 // TCP_USER_TIMEOUT, which syscall does not have
	for name, option := range map[string][2]int{
		"on": {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}, "idle": {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
		"interval": {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL}, "count": {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},
		"user timeout": {syscall.IPPROTO_TCP, userTimeout},
	} {
		_ = raw.Control(func(fd uintptr) { options[name], err = syscall.GetsockoptInt(int(fd), option[0], option[1]) })
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	r.read <- options
	return r.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

func TestTheSystemFindsOutIn10SecondsThatTheHostOfAWorkerHasVanished(t *testing.T) {
	s := &server{id: "a"}
	listen(t, s, "127.0.0.1:0")
	r := reading{insecure.NewCredentials(), make(chan map[string]int, 1)}
	conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: still{endpoints: []*advertise.Endpoint{at(s.addr)}}, Service: "echo"}, grpc.WithTransportCredentials(r))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Connect()
	select {
	case o := <-r.read:
		silent := time.Duration(o["idle"]+o["interval"]*o["count"]) * time.Second
		if o["on"] == 0 || silent != 10*time.Second {
			t.Errorf("a host that owes nothing is found after %v: %v", silent, o)
		}
		if owing := time.Duration(o["user timeout"]) * time.Millisecond; owing != 10*time.Second {
			t.Errorf("a host that owes an acknowledgement is found after %v", owing)
		}
	case <-time.After(waitTime):
		t.Fatal("no connection")
	}
}
