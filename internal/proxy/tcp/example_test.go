package tcp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/tcp"
	"github.com/ringway/ringway/internal/wire"
)

// The handler of a relay finds the service and an endpoint. This one is the service itself.
func Example() {
	server := tcp.New(tcp.Config{
		Service: "db",
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			line, _ := buffered.ReadString('\n')
			fmt.Fprintf(conn, "%s reads %s", r.Header.Get(wire.ServiceHeader), line)
		}),
		Refused: tcp.NewRefused(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(socket) }()

	client, err := net.Dial("tcp", socket.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	fmt.Fprintln(client, "SELECT 1")
	answer, _ := io.ReadAll(client)
	fmt.Print(string(answer))

	_ = server.Close()
	fmt.Println(<-ended)
	// Output:
	// db reads SELECT 1
	// http: Server closed
}
