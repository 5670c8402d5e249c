//go:build !unix

package relay

import "github.com/ringway/ringway/internal/relay/check"

// openFiles returns no limit on this system.
func openFiles() check.Descriptors { return check.Descriptors{} }

func fileLimit() int { return 0 }
