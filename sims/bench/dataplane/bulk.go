package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bulkBlock = 64 << 10
	// bulkLimit bounds what one session sends in one run.
	bulkLimit = 8 << 30
	// bulkDrain is how long the bytes that are on their way may take after the last one was sent.
	bulkDrain = 30 * time.Second
)

// bulk sends as many bytes as it can over TCP sessions to a service that sends them all back.
// Its unit is MiB, in both directions together. A byte that is lost is an error.
type bulk struct {
	addr     string
	sessions int
}

func (b bulk) run(ctx context.Context, d time.Duration) (report, error) {
	begin := time.Now()
	var carried atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, b.sessions)
	for i := range b.sessions {
		group.Go(func() {
			n, err := b.session(ctx, begin.Add(d))
			carried.Add(n)
			errs[i] = err
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return report{}, err
	}
	mib := int(carried.Load() >> 20)
	if mib == 0 {
		return report{}, errors.New("not one MiB was carried")
	}
	return report{requests: mib, rate: float64(mib) / time.Since(begin).Seconds()}, nil
}

// session sends bytes until a time and reads until all are back. It returns the bytes of both
// directions.
func (b bulk) session(ctx context.Context, until time.Time) (int64, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", b.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := c.SetDeadline(until.Add(bulkDrain)); err != nil {
		return 0, err
	}
	var sent int64
	writing := make(chan error, 1)
	go func() {
		block := make([]byte, bulkBlock)
		for sent < bulkLimit && time.Now().Before(until) {
			n, err := c.Write(block)
			sent += int64(n)
			if err != nil {
				writing <- err
				return
			}
		}
		writing <- c.(*net.TCPConn).CloseWrite()
	}()
	received, readErr := count(c)
	if readErr != nil {
		_ = c.Close() // the writer may wait for this connection
	}
	if err := errors.Join(readErr, <-writing); err != nil {
		return 0, fmt.Errorf("session with %s: %w", b.addr, err)
	}
	if received != sent {
		return 0, fmt.Errorf("session with %s: %d of %d bytes came back", b.addr, received, sent)
	}
	return sent + received, nil
}

// count reads to the end.
func count(r io.Reader) (n int64, _ error) {
	block := make([]byte, bulkBlock)
	for {
		m, err := r.Read(block)
		n += int64(m)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// echoBytes sends all bytes of a connection back. It copies them through memory of its own,
// as most services do: io.Copy would splice them.
func echoBytes(c net.Conn) {
	defer c.Close()
	block := make([]byte, bulkBlock)
	for {
		n, err := c.Read(block)
		if _, failed := c.Write(block[:n]); err != nil || failed != nil {
			return
		}
	}
}
