package advertise

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"os"

	"github.com/ringway/ringway/membership"
)

// streamProtocol names the stream on which members compare and send records.
const streamProtocol = "adsync/1"

// An exchange makes the records of two members equal in three turns. If they are already
// equal, it ends after the first answer and costs 26 bytes. With a member of an earlier
// release, which knows only the root of workers, it covers only their records.
//
//	initiator                        responder
//	hello(roots) ------------------>
//	            <------------------- same                     (done), or
//	            <------------------- digest(salt, 256 short hashes)
//	list of differing buckets, end ->
//	            <------------------- records newer here, want, end
//	records wanted, end ----------->
//	            <------------------- end
//
// A fetch is the initiator's want, answered by records and end.
//
// This is anti-entropy with a hash tree of two levels, the root and 256 buckets: what it sends
// depends on what differs, not on the size of the fleet. Lists have stamps and not only hashes,
// because hashes do not show which record is newer: after a partition both sides would then send
// all that differs. A side sends only in its turn, so one goroutine for each side is enough, and a
// frame out of turn is an offence.

// The direction of an exchange, as metric labels: opened by this node or by the peer.
const (
	outward = "out"
	inward  = "in"
)

// Results of exchanges, as metric labels.
const (
	resultSame    = "same"
	resultSynced  = "synced"
	resultFetched = "fetched"
	resultBusy    = "busy"
	resultFailed  = "failed"
	resultSlow    = "slow"
	resultHostile = "hostile"
)

var errBusy = errors.New("the member is busy with other exchanges")

// classify sorts an exchange's error: the result to count and, if the peer caused the
// error, the offence. Slowness is an offence as well: time is one of the bounds of an exchange. A
// busy peer commits none, it protects itself.
func classify(err error) (result, offence string) {
	var bad *invalid
	switch {
	case errors.Is(err, errBusy):
		return resultBusy, ""
	case errors.As(err, &bad):
		return resultHostile, bad.reason
	case errors.Is(err, os.ErrDeadlineExceeded):
		return resultSlow, resultSlow
	default:
		return resultFailed, ""
	}
}

// open opens a stream to a member and runs the initiator's side of an exchange on it.
func (c *Catalogue) open(ctx context.Context, id string, side func(context.Context, *frames) (string, error)) error {
	dial, cancel := context.WithTimeout(ctx, frameTimeout)
	defer cancel()
	conn, err := c.cfg.Gossip.OpenStream(dial, id, streamProtocol)
	if err != nil {
		c.metrics.exchanges.WithLabelValues(outward, resultFailed).Inc()
		c.logger.Debug("could not open a record exchange", "peer", id, "error", err)
		return err
	}
	// The hello of the stream has proven that this member answers.
	peer := membership.Peer{ID: id, Addr: conn.RemoteAddr().String()}
	return c.runExchange(ctx, c.newFrames(outward, peer, conn), side)
}

// runExchange runs one side of an exchange and closes the connection. Only runExchange counts and logs
// how an exchange ended.
//
// The end of ctx closes the connection, because nothing else ends a read or a write that waits. The
// deadline of ctx is for the other waits: for the loop, and for the rate at which this node sends.
func (c *Catalogue) runExchange(ctx context.Context, f *frames, side func(context.Context, *frames) (string, error)) error {
	defer func() { _ = f.conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = f.conn.Close() })
	defer stop()
	limited, cancel := context.WithDeadline(ctx, f.end)
	defer cancel()

	result, err := side(limited, f)
	offence := ""
	if err != nil {
		result, offence = classify(err)
	}
	c.metrics.exchanges.WithLabelValues(f.direction, result).Inc()
	if offence != "" {
		c.metrics.cutOffs.WithLabelValues(offence).Inc()
		c.logPeer(f, "cut off a record exchange", "reason", offence, "error", err)
	} else if err != nil {
		c.logger.Debug("record exchange failed", "peer", f.peer.ID, "direction", f.direction, "result", result, "error", err)
	}
	if f.firstBad != nil {
		_, reason := classify(f.firstBad)
		c.logPeer(f, "dropped bad records of an exchange", "records", f.dropped, "reason", reason, "error", f.firstBad)
	}
	if f.foreign != nil {
		c.logPeer(f, "received a record in the name of this node that it did not write, publishing its own again", "sequence", f.foreign.stamp.sequence)
	}
	return err
}

// logPeer logs a warning about a peer. The metrics count every case; the log lines are
// limited to one per second, so that peers cannot flood the log.
func (c *Catalogue) logPeer(f *frames, what string, args ...any) {
	if c.logRate.Allow() {
		c.logger.Warn(what, append([]any{"peer", f.peer.ID, "addr", f.peer.Addr, "direction", f.direction}, args...)...)
	}
}

// sync is the initiator's side of a comparison. It reads the roots, the list and the wanted records
// in separate turns of the loop, and the store may change between them. That is harmless: a merge
// compares stamps whatever was listed, and what was missed differs in the next exchange.
func (c *Catalogue) sync(ctx context.Context, f *frames) (string, error) {
	var roots []byte
	if err := c.onLoop(ctx, func() {
		roots = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.store.root), c.store.relays.root)
	}); err != nil {
		return "", err
	}
	if err := f.send(ctx, frameHello, roots); err != nil {
		return "", err
	}
	kind, b, err := f.receive(maxFrameBytes)
	switch {
	case err != nil:
		return "", err
	case kind == frameSame:
		return resultSame, nil
	case kind == frameBusy:
		return "", errBusy
	case kind != frameDigest:
		return "", unexpected(kind)
	}
	theirs, err := decodeDigest(b)
	if err != nil {
		return "", err
	}
	var differing bitmap
	var list []listed
	if err := c.onLoop(ctx, func() { differing = c.store.differing(theirs); list = c.store.list(differing, theirs.relays) }); err != nil {
		return "", err
	}
	if err := f.sendList(ctx, differing, list); err != nil {
		return "", err
	}
	wanted, err := c.receiveRecords(ctx, f)
	if err != nil {
		return "", err
	}
	if err := c.sendRequested(ctx, f, wanted); err != nil {
		return "", err
	}
	if kind, _, err := f.receive(maxFrameBytes); err != nil {
		return "", err
	} else if kind != frameEnd {
		return "", unexpected(kind)
	}
	return resultSynced, nil
}

// fetch requests single records.
func (c *Catalogue) fetch(ctx context.Context, f *frames, wanted []instance) (string, error) {
	if err := f.sendWant(ctx, wanted); err != nil {
		return "", err
	}
	if _, err := c.receiveRecords(ctx, f); err != nil {
		return "", err
	}
	return resultFetched, nil
}

// receiveRecords merges the records that the peer sends until it ends its turn, and collects
// the instances that the peer wants. An invalid record is counted and skipped.
//
// The limits are those of the whole turn: each frame is small, but a peer could send them without
// an end. Each frame is merged when it arrives, so an exchange that fails later has still repaired
// something.
func (c *Catalogue) receiveRecords(ctx context.Context, f *frames) (wanted []instance, err error) {
	for taken := 0; ; {
		kind, b, err := f.receive(maxFrameBytes)
		if err != nil {
			return nil, err
		}
		switch kind {
		case frameEnd:
			return wanted, nil
		case frameBusy:
			return nil, errBusy
		case frameWant:
			more, err := decodeWant(b)
			if err != nil {
				return nil, err
			}
			if wanted = append(wanted, more...); len(wanted) > maxItems {
				return nil, refuse("endless", "more than %d records wanted", maxItems)
			}
		case frameRecords:
			raws, err := decodeRecords(b)
			if err != nil {
				return nil, err
			}
			if taken += len(raws); taken > maxItems {
				return nil, refuse("endless", "more than %d records", maxItems)
			}
			// Not on the loop, which a thousand signatures would block.
			records := make([]examined, len(raws))
			for i, raw := range raws {
				records[i] = c.examine(raw)
			}
			if err := c.onLoop(ctx, func() { c.mergeAll(records, f) }); err != nil {
				return nil, err
			}
			if f.dropped > maxBadRecords {
				return nil, refuse("bad_records", "more than %d bad records, the first: %v", maxBadRecords, f.firstBad)
			}
		default:
			return nil, unexpected(kind)
		}
	}
}

// mergeAll merges one frame of an exchange. A bad record does not end the exchange, because a later
// build may have sent it; f remembers the first one for the log.
//
// A record with an unknown certificate may be genuine, and a fleet may renew all certificates in the
// same minute. But an honest peer sends at most two records of a member in an exchange, that of the life
// that is live there and that of the life that is live here, so more of one are invented.
func (c *Catalogue) mergeAll(records []examined, f *frames) {
	var news []*entry
	for _, x := range records {
		e, result, err := c.merge(x)
		if err == nil && errors.Is(x.err, membership.ErrUnproven) {
			err = c.countUnproven(x.entry, f)
		}
		switch {
		case err != nil:
			f.dropped++
			f.firstBad = cmp.Or(f.firstBad, err)
		case result == foreign:
			f.foreign = e
		case result == applied:
			news = append(news, e)
		}
	}
	c.spreadSome(news)
}

// countUnproven returns why a record with an unknown certificate counts as a bad one; nil if it does not.
func (c *Catalogue) countUnproven(e *entry, f *frames) error {
	id := e.record.NodeID
	if _, live := c.store.members.Get(id); !live {
		return nil
	}
	if f.unproven == nil {
		f.unproven = map[string]int{}
	}
	if f.unproven[id]++; f.unproven[id] > maxUnproven {
		return refuse(string(unproven), "record of %q, epoch %d: its certificate is not known here, and an honest member sends at most %d such records of a live member", id, e.record.Epoch, maxUnproven)
	}
	return nil
}

// sendRequested sends those of the wanted records that this node has, and ends the turn. An
// instance that is wanted twice is sent once, so that a peer cannot make this node send a large
// record again and again.
func (c *Catalogue) sendRequested(ctx context.Context, f *frames, wanted []instance) error {
	var raws [][]byte
	err := c.onLoop(ctx, func() {
		given := make(map[instance]struct{}, min(len(wanted), len(c.store.entries)))
		for _, i := range wanted {
			_, twice := given[i]
			if e := c.store.entries[i]; e != nil && !twice {
				given[i] = struct{}{}
				raws = append(raws, e.raw)
			}
		}
	})
	if err != nil {
		return err
	}
	if err := f.sendRecords(ctx, raws); err != nil {
		return err
	}
	return f.send(ctx, frameEnd, nil)
}

// answer is the responder's side, beginning with the frame that opened the exchange. A want opens a
// fetch, which needs no comparison. After a hello both sides decide from stamps alone which record
// is newer, so no record is sent that the other side has.
func (c *Catalogue) answer(ctx context.Context, f *frames, kind frameKind, b []byte) (string, error) {
	switch kind {
	case frameWant:
		wanted, err := decodeWant(b)
		if err != nil {
			return "", err
		}
		return resultFetched, c.sendRequested(ctx, f, wanted)
	case frameHello:
	default:
		return "", unexpected(kind)
	}
	theirs, err := decodeHello(b)
	if err != nil {
		return "", err
	}
	same, ours := false, []byte(nil)
	err = c.onLoop(ctx, func() {
		same = c.store.root == theirs.root && (!theirs.relays || c.store.relays.root == theirs.relayRoot)
		if !same {
			ours = c.store.digest(c.random.Uint64(), theirs.relays).encode()
		}
	})
	if err != nil {
		return "", err
	}
	if same {
		return resultSame, f.send(ctx, frameSame, nil)
	}
	if err := f.send(ctx, frameDigest, ours); err != nil {
		return "", err
	}
	marked, list, err := receiveList(f)
	if err != nil {
		return "", err
	}
	var newer [][]byte
	var wanted []instance
	if err := c.onLoop(ctx, func() { newer, wanted = c.store.compare(marked, list, theirs.relays) }); err != nil {
		return "", err
	}
	if err := f.sendRecords(ctx, newer); err != nil {
		return "", err
	}
	if err := f.sendWant(ctx, wanted); err != nil {
		return "", err
	}
	if err := f.send(ctx, frameEnd, nil); err != nil {
		return "", err
	}
	if _, err := c.receiveRecords(ctx, f); err != nil {
		return "", err
	}
	return resultSynced, f.send(ctx, frameEnd, nil)
}

// receiveList reads the initiator's list. Each frame repeats the bitmap of the buckets that differ,
// so that the list of an initiator without records in them still states which buckets it has
// compared.
func receiveList(f *frames) (marked bitmap, list []listed, err error) {
	for {
		kind, b, err := f.receive(maxFrameBytes)
		if err != nil {
			return marked, nil, err
		}
		switch kind {
		case frameEnd:
			return marked, list, nil
		case frameList:
			m, more, err := decodeList(b)
			if err != nil {
				return marked, nil, err
			}
			for i := range m {
				marked[i] |= m[i]
			}
			if list = append(list, more...); len(list) > maxItems {
				return marked, nil, refuse("endless", "more than %d instances listed", maxItems)
			}
		default:
			return marked, nil, unexpected(kind)
		}
	}
}
