package membership

// Peer is the other end of a stream, as its hello named it.
type Peer struct {
	ID    string
	Epoch uint64
	Role  Role
	// Certified is set when a certificate of our authorities says the same of id
	// and role; otherwise they are claims.
	Certified bool
	// Addr is the remote address of the connection.
	Addr string

	tick uint64 // its time, see guard.go
}
