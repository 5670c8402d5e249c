//go:build !unix

package relay

import "github.com/ringway/ringway/internal/relay/check"

// openFiles: there is no limit to tell of.
func openFiles() check.Descriptors { return check.Descriptors{} }

func fileLimit() int { return 0 }
