package statuspage

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// number groups the digits of a count by three.
func number[N int | int64 | uint64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// span is "3", or "3 to 4".
func span(least, most int) string {
	if least == most {
		return number(least)
	}
	return number(least) + " to " + number(most)
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// milliseconds has as many decimals as say something. Nothing measured is a dash.
func milliseconds(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case d == 0:
		return "–"
	case ms < 100:
		return strconv.FormatFloat(ms, 'f', 2, 64)
	default:
		return number(int64(math.Round(ms)))
	}
}

// percent has one decimal.
func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }

// score has few digits: what it means is which of two is less.
func score(s float64) string {
	switch {
	case math.IsNaN(s) || math.IsInf(s, 0):
		return "–"
	case s >= 1e6:
		return fmt.Sprintf("%.1e", s)
	}
	return strconv.FormatFloat(s, 'f', 2, 64)
}

// age is coarse: what changes every second would be sent every second.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return "< 1 min"
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	case d < 2*day:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	}
	return fmt.Sprintf("%d d", int(d/day))
}
