package membership

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// placeholderTimeout is far above what memberlist needs for two messages.
const placeholderTimeout = 30 * time.Second

// keepQueueOccupied puts a message into memberlist's own queue that is too long for any packet, so
// it stays there. While that queue is never empty, it never assigns the number of a message again,
// and so no message displaces another of the same length: memberlist's news of suspicions, deaths
// and joins, and the goodbye of this node.
//
// The message says that an instance is dead that never existed. memberlist must know an instance
// before it passes on its death, so the instance joins first. No other member hears of it but in
// state exchanges of the first half minute, until memberlist forgets it, and ignores it there.
//
// Both messages are in clear text. memberlist accepts that only until this method returns, and the
// transport receives nothing before.
func (n *Node) keepQueueOccupied(c *memberlist.Config) error {
	name := n.delegate.placeholder
	for _, m := range [][]byte{
		encodeMessage(messageAlive, &aliveMessage{Incarnation: 1, Node: name, Addr: n.advertise.Addr().AsSlice(), Vsn: c.BuildVsnArray()}),
		encodeMessage(messageDead, &doubtMessage{Incarnation: 1, Node: name, From: strings.Repeat(".", 2*c.UDPBufferSize)}),
	} {
		n.transport.queue(&memberlist.Packet{Buf: append(slices.Clone(n.transport.header), m...), From: n.transport.packets.LocalAddr(), Timestamp: time.Now()})
		select {
		case <-n.delegate.placed:
		case <-time.After(placeholderTimeout):
			return errors.New("memberlist does not handle messages")
		}
	}
	c.GossipVerifyIncoming = true
	return nil
}

// encodeMessage encodes a message of memberlist.
func encodeMessage(kind byte, message any) []byte {
	var b bytes.Buffer
	b.WriteByte(kind)
	_ = codec.NewEncoder(&b, &codec.MsgpackHandle{}).Encode(message) // into memory, and of plain fields: cannot fail
	return b.Bytes()
}
