package xds

import (
	"errors"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that lean extends
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// fields has the fields of a message that are read, by number, each with the fields of the message in it;
// nil are all.
type fields map[protowire.Number]fields

// The id of a node and its locality, and the code and the text of an error.
var (
	nodeRead   = fields{1: nil, 4: nil}
	statusRead = fields{1: nil, 2: nil}
)

// read has what the control plane reads of a request: versions, names, types and nonces whole.
func read(request any) fields {
	switch request.(type) {
	case *discovery.DiscoveryRequest:
		return fields{1: nil, 2: nodeRead, 3: nil, 4: nil, 5: nil, 6: statusRead}
	case *discovery.DeltaDiscoveryRequest:
		return fields{1: nodeRead, 2: nil, 3: nil, 4: nil, 5: nil, 6: nil, 7: statusRead}
	}
	return nil
}

// of returns a message without the fields that are not read. Of the others it may have the number most.
func (f fields) of(message []byte, most int) ([]byte, error) {
	if f == nil {
		return message, nil
	}
	var kept []byte
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		field := message[:size]
		message = message[size:]
		inner, wanted := f[number]
		if !wanted {
			continue
		}
		if most--; most < 0 {
			return nil, errManyFields
		}
		switch {
		case inner == nil || kind != protowire.BytesType:
			kept = append(kept, field...)
		default:
			_, _, tag := protowire.ConsumeTag(field)
			value, _ := protowire.ConsumeBytes(field[tag:])
			value, err := inner.of(value, most)
			if err != nil {
				return nil, err
			}
			kept = protowire.AppendBytes(append(kept, field[:tag]...), value)
		}
	}
	return kept, nil
}

var errManyFields = errors.New("it has more names than a client may subscribe to: lower the number of services of one client, or raise MaxServices")

// lean is the codec of the server. It decodes nothing that the control plane does not read: two bytes of
// a request can become a hundred and more of a decoded node.
type lean struct {
	encoding.CodecV2
	most int // fields of a request
}

// newLean returns the codec for clients that subscribe to that many services at most. An incremental
// request may name each of them three times, and has few other fields.
func newLean(services int) lean { return lean{encoding.GetCodecV2("proto"), 3*services + 16} }

// Unmarshal implements encoding.CodecV2.
func (l lean) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("xds: a request of type %T is no message", v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	kept, err := read(v).of(whole.ReadOnlyData(), l.most)
	if err != nil {
		return fmt.Errorf("xds: read a request: %w", err)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(kept, m)
}
