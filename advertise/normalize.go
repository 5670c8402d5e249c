package advertise

// Normalize fills in the defaults and reports what Offer would refuse.
func (s Service) Normalize() (Service, error) {
	s = s.withDefaults()
	return s, s.validate()
}
