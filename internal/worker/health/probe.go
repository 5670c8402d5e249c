package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// probe asks once. The error is a *failure, and nil means success. The connection
// is closed and no goroutine is left when it returns, which it does when ctx ends.
func (c Check) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	failed := c.attempt(ctx)
	if failed == nil {
		return nil
	}
	failed.asked = c.asked()
	return failed
}

func (c Check) attempt(ctx context.Context) *failure {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return c.broken("connection", err)
	}
	defer conn.Close()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed connection
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	switch c.Kind {
	case HTTP:
		return c.askHTTP(conn)
	case GRPC:
		return c.askGRPC(conn)
	}
	return nil
}

// asked is what a probe does, for people.
func (c Check) asked() string {
	switch c.Kind {
	case HTTP:
		return fmt.Sprintf("GET http://%s%s", c.Address, c.Path)
	case GRPC:
		if c.Service == "" {
			return fmt.Sprintf("gRPC health check of %s", c.Address)
		}
		return fmt.Sprintf("gRPC health check of %q at %s", c.Service, c.Address)
	}
	return "connect to " + c.Address
}

// resultOf is the label under which the outcome of a probe is counted.
func resultOf(err error) string {
	var failed *failure
	switch {
	case err == nil:
		return resultSuccess
	case errors.As(err, &failed):
		return failed.result
	}
	return resultUnclassified
}
