package membership

// Peer is the other end of a stream, as its hello named it.
type Peer struct {
	ID    string
	Epoch uint64
	Role  Role
	// Addr is the remote address of the connection.
	Addr string
}
