package upstream_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// quietService sends its header, and is silent until the client has gone.
type quietService struct {
	testpb.UnimplementedTestServiceServer
}

func (quietService) FullDuplexCall(s testpb.TestService_FullDuplexCallServer) error {
	err := s.SendHeader(metadata.Pairs("x-header", "h"))
	<-s.Context().Done()
	return err
}

// handed is a listener of the connections that it is handed.
type handed chan net.Conn

func (l handed) Accept() (net.Conn, error) {
	nc, open := <-l
	if !open {
		return nil, io.EOF
	}
	return nc, nil
}

func (l handed) Close() error   { return nil }
func (l handed) Addr() net.Addr { return &net.TCPAddr{} }

// A server of gRPC with its defaults ends a connection, streams included, on which more PINGs come
// than it allows.
func TestACallOfGRPCThatIsSilentForLongStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(handed)
		srv := grpc.NewServer()
		testpb.RegisterTestServiceServer(srv, quietService{})
		served := make(chan error, 1)
		go func() { served <- srv.Serve(conns) }()
		dials := 0
		pool, err := upstream.NewPool(upstream.Config{Address: "service:80", Protocol: advertise.H2C, Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			conns <- far
			dials++
			return near, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		body, w := io.Pipe() // the client sends nothing
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/grpc.testing.TestService/FullDuplexCall", body)
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
		ended := make(chan *upstream.Fault, 1)
		go func() {
			_, fault := pool.Carry(httptest.NewRecorder(), r, &upstream.Options{})
			ended <- fault
		}()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Error("the call has ended:", err)
		default:
		}
		cancel()
		_ = w.Close()
		time.Sleep(3 * time.Hour) // idle
		if dials != 1 {
			t.Errorf("%d connections were opened", dials)
		}
		if open := pool.Stats().Open; open != 1 {
			t.Errorf("%d connections are open", open)
		}
		pool.Close()
		close(conns)
		srv.Stop()
		<-served
	})
}
