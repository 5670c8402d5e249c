package wire

import (
	"fmt"

	"golang.org/x/net/http/httpguts"
)

// MaxCookieName is how long the name of a session cookie may be, in bytes: every answer and
// every request carries it.
const MaxCookieName = 64

// CheckCookieName returns why a session cookie cannot have this name.
func CheckCookieName(name string) error {
	if len(name) > MaxCookieName || !httpguts.ValidHeaderFieldName(name) { // both are tokens
		return fmt.Errorf("%.80q is not the name of a cookie: want 1 to %d letters, digits and -_.!#$%%&'*+^`|~", name, MaxCookieName)
	}
	return nil
}
