package socket

import "net"

// Sight is what a look at a socket finds.
type Sight uint8

// The sights.
const (
	Quiet   Sight = iota // nothing
	Arrived              // bytes
	Gone                 // the end of the connection
)

// Below returns the connection of the socket below TLS and what is put around it.
func Below(nc net.Conn) net.Conn {
	for {
		around, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = around.NetConn()
	}
}

// Reset closes a connection so that its other end gets an error and no end of the data.
func Reset(nc net.Conn) {
	if below, ok := Below(nc).(*net.TCPConn); ok {
		_ = below.SetLinger(0)
		_ = below.Close() // before TLS could announce an orderly end
	}
	_ = nc.Close()
}
