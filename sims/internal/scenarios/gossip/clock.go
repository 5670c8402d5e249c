package gossip

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// virtually runs f and every goroutine it starts under a virtual clock: time moves on when
// all of them wait. All must have ended when f returns.
//
// Only package testing makes such a clock. It asks for a test and leaves the one that it is
// given alone as long as nothing fails, so that an empty one will do.
func virtually(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("virtual clock: %v", r)
		}
	}()
	synctest.Test(new(testing.T), func(*testing.T) { err = f() })
	return err
}
