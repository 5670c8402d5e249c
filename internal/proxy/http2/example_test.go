package http2_test

import (
	"fmt"
	"io"
	"net"

	"github.com/ringway/ringway/internal/proxy/http2"
)

// A client and a server exchange one request.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	served := make(chan error)
	go func() {
		nc, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		served <- http2.NewServer(nc, http2.Config{MaxHead: 64 << 10, MaxStreams: 100, Serve: func(s *http2.Stream) {
			defer s.Close()
			_ = s.Send([]http2.Field{{Name: ":status", Value: "200"}}, false)
			_, _ = s.Write([]byte("you asked for "+s.Request().Path), true)
		}}, nil).Run()
	}()

	nc, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	c := http2.NewClient(nc, http2.Config{MaxHead: 64 << 10})
	go func() { _ = c.Run() }()
	s := c.NewStream()
	err = s.Open([]http2.Field{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "example.com"}, {Name: ":path", Value: "/hello"},
	}, true, false)
	if err != nil {
		panic(err)
	}
	head, err := s.Answer()
	if err != nil {
		panic(err)
	}
	body, err := io.ReadAll(s)
	fmt.Println(head.Status, string(body), err)
	s.Close()
	c.Shutdown()
	fmt.Println(<-served)
	// Output:
	// 200 you asked for /hello <nil>
	// EOF
}
