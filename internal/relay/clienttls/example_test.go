package clienttls_test

import (
	"fmt"
	"io"
	"net"

	"github.com/ringway/ringway/internal/relay/clienttls"
)

// A client that closes its connection instead of beginning TLS.
func ExampleReason() {
	client, server := net.Pipe()
	_ = client.Close()
	_, err := server.Read(make([]byte, 1))
	fmt.Println(err == io.EOF, clienttls.Reason(err))
	// Output: true closed
}
