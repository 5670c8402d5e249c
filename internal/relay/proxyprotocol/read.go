package proxyprotocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/pires/go-proxyproto"
)

const (
	// maxV1 is the length of the longest header of version 1.
	maxV1 = 107
	// prefixV2 is the length of a header of version 2 up to the end of its length field.
	prefixV2 = 16
	// maxV2 bounds what follows in version 2: the addresses, and fields that load balancers add,
	// of which the largest is the certificate of a client.
	maxV2 = 2048
	// least is the length of the shortest header, "PROXY UNKNOWN\r\n".
	least = 15
)

// The reasons for which a connection is not accepted.
var (
	ErrMissing   = errors.New("no header of the PROXY protocol: remove the network from --proxy-protocol-from, or make the load balancer send the header")
	ErrMalformed = errors.New("malformed header of the PROXY protocol")
)

// The signatures with which a header begins.
var (
	signatureV1 = []byte("PROXY ")
	signatureV2 = []byte("\r\n\r\n\x00\r\nQUIT\n")
)

// Read reads a header. The address is not valid if the header reports none, because the load
// balancer speaks for itself or does not know it. An error that is neither ErrMissing nor
// ErrMalformed is of the reader.
func Read(r io.Reader) (client netip.AddrPort, err error) {
	var buf [prefixV2 + maxV2]byte
	n := 0
	for n < least {
		got, err := r.Read(buf[n:least])
		n += got
		if !begins(buf[:n]) {
			return client, ErrMissing
		}
		if err != nil && n < least {
			return client, fmt.Errorf("a header of the PROXY protocol: %w", early(err))
		}
	}
	header := buf[:n]
	if header[0] == signatureV1[0] {
		header, err = readV1(r, header)
	} else {
		header, err = readV2(r, header)
	}
	if err != nil {
		return client, err
	}
	return parse(header)
}

// begins reports whether a header can begin with these bytes.
func begins(b []byte) bool {
	return bytes.Equal(b[:min(len(b), len(signatureV1))], signatureV1[:min(len(b), len(signatureV1))]) ||
		bytes.Equal(b[:min(len(b), len(signatureV2))], signatureV2[:min(len(b), len(signatureV2))])
}

// readV1 reads the rest of a line, byte by byte, because what follows is not for this package.
func readV1(r io.Reader, header []byte) ([]byte, error) {
	for header[len(header)-1] != '\n' {
		if len(header) == maxV1 {
			return nil, fmt.Errorf("%w: more than %d bytes without the end of the line", ErrMalformed, maxV1)
		}
		header = header[:len(header)+1]
		if _, err := io.ReadFull(r, header[len(header)-1:]); err != nil {
			return nil, fmt.Errorf("a header of the PROXY protocol: %w", early(err))
		}
	}
	return header, nil
}

// readV2 reads the rest of a binary header.
func readV2(r io.Reader, header []byte) ([]byte, error) {
	header = header[:prefixV2]
	if _, err := io.ReadFull(r, header[least:]); err != nil {
		return nil, fmt.Errorf("a header of the PROXY protocol: %w", early(err))
	}
	more := int(binary.BigEndian.Uint16(header[prefixV2-2:]))
	if more > maxV2 {
		return nil, fmt.Errorf("%w: %d bytes follow, at most %d are read", ErrMalformed, more, maxV2)
	}
	header = header[:prefixV2+more]
	if _, err := io.ReadFull(r, header[prefixV2:]); err != nil {
		return nil, fmt.Errorf("a header of the PROXY protocol: %w", early(err))
	}
	return header, nil
}

// parse returns the address of the client in a whole header.
func parse(header []byte) (client netip.AddrPort, err error) {
	const proxyV2, unspecified = 0x21, 0x00
	if header[0] != signatureV1[0] && header[12] == proxyV2 && header[13] == unspecified {
		return client, nil // the library refuses it, and the specification lets the receiver decide
	}
	in := bufio.NewReaderSize(bytes.NewReader(header), len(header))
	h, err := proxyproto.Read(in)
	if err != nil {
		return client, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if in.Buffered() > 0 {
		return client, fmt.Errorf("%w: bytes follow in it", ErrMalformed)
	}
	source, _, ok := h.TCPAddrs()
	if h.Command.IsLocal() || !ok {
		return client, nil
	}
	client = source.AddrPort()
	client = netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
	if !client.IsValid() || client.Addr().IsUnspecified() || client.Addr().IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("%w: %s is the address of no client", ErrMalformed, source)
	}
	return client, nil
}

// early makes the end of a connection within a header an error.
func early(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
