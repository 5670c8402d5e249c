package affinity

import "fmt"

// maxServiceName keeps a name usable as one DNS label.
const maxServiceName = 63

// ValidateService refuses a service name that is not [a-zA-Z0-9][a-zA-Z0-9._-]{0,62}.
// The tilde stays out because it separates a service from a slot number.
func ValidateService(name string) error {
	valid := len(name) >= 1 && len(name) <= maxServiceName
	for i := 0; valid && i < len(name); i++ {
		c := name[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		valid = alphanumeric || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if !valid {
		return fmt.Errorf("affinity: service name %q: allowed are 1 to %d letters, digits, '.', '_' and '-', the first a letter or a digit",
			name, maxServiceName)
	}
	return nil
}
