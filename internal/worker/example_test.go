package worker_test

import (
	"fmt"

	"github.com/ringway/ringway/internal/worker"
)

// What --service takes.
func ExampleParseService() {
	s, err := worker.ParseService("chat=10.0.0.5:9000;protocol=h2c;weight=20;tag=gpu;check=grpc:chat.Chat;interval=1s")
	fmt.Println(s.Name, s.Address, s.Protocol, s.Weight, s.Tags, err)
	fmt.Println(s.Check.Kind, s.Check.Service, "at", s.Check.Address, "every", s.Check.Interval)
	_, err = worker.ParseService("chat=10.0.0.5")
	fmt.Println(err)
	// Output:
	// chat 10.0.0.5:9000 h2c 20 [gpu] <nil>
	// grpc chat.Chat at 10.0.0.5:9000 every 1s
	// service "chat=10.0.0.5": service "chat": address "10.0.0.5": address 10.0.0.5: missing port in address: want host:port with a port from 1 to 65535; write name=host:port, or name=host:port;protocol=h2c;weight=20;check=http:/healthz
}
