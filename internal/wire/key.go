package wire

import (
	"context"
	"time"
)

// DrainTimeout is how long a member that stops waits for requests in flight, by default: longer
// than requests take, and as long as service managers wait before they kill a process.
const DrainTimeout = 30 * time.Second

type keyOfKey struct{}

// WithKey returns a context whose requests have a key. Clients and routers of Go programs share
// it, so a request keeps its key when it takes the other way.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfKey{}, key)
}

// KeyOf returns the key of WithKey, empty without one.
func KeyOf(ctx context.Context) string {
	key, _ := ctx.Value(keyOfKey{}).(string)
	return key
}
