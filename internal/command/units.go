package command

import (
	"fmt"
	"strconv"
	"time"
)

// count is a number as people read it: 1234567 is 1.2M. Below ten thousand it is
// exact.
func count(n uint64) string {
	const thousand = 1000
	if n < 10*thousand {
		return strconv.FormatUint(n, 10)
	}
	v := float64(n)
	for _, unit := range "kMGT" {
		if v /= thousand; v < 999.95 || unit == 'T' {
			return strconv.FormatFloat(v, 'f', 1, 64) + string(unit)
		}
	}
	return ""
}

// age is a time span in its two largest units: 3d4h, 5m12s, 4s.
func age(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	units := []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		n := d / u.size
		if n == 0 && u.size > time.Second {
			continue
		}
		text := fmt.Sprintf("%d%s", n, u.name)
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}

// latency is a number of milliseconds with as many digits as say something.
func latency(ms float64) string {
	switch {
	case ms <= 0:
		return ""
	case ms < 1:
		return fmt.Sprintf("%.0fµs", ms*1000)
	case ms < 100:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0fms", ms)
	}
	return fmt.Sprintf("%.1fs", ms/1000)
}

// percent is a share, 0 to 1.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
