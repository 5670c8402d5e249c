package deploy_test

// The part of the Kubernetes API that the manifests use, with the names of that API.
// Decoding is strict: a mistyped key, or a new key that no test checks, is an error.

type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
	Spec       spec
	// AutomountServiceAccountToken belongs to service accounts.
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
}

type metadata struct {
	Name   string
	Labels map[string]string
}

// spec has the fields of all kinds.
type spec struct {
	// Service
	ClusterIP                string `yaml:"clusterIP"`
	PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
	Ports                    []servicePort
	// Selector is a map for services and a label selector for the rest.
	Selector any
	// StatefulSet and Deployment
	ServiceName         string `yaml:"serviceName"`
	Replicas            int
	PodManagementPolicy string `yaml:"podManagementPolicy"`
	Strategy            any
	Template            struct {
		Metadata metadata
		Spec     podSpec
	}
	// PodDisruptionBudget
	MaxUnavailable             int    `yaml:"maxUnavailable"`
	UnhealthyPodEvictionPolicy string `yaml:"unhealthyPodEvictionPolicy"`
	// NetworkPolicy
	PodSelector labelSelector `yaml:"podSelector"`
	PolicyTypes []string      `yaml:"policyTypes"`
	Ingress     []policyRule
	Egress      []policyRule
	// Issuer
	CA struct {
		SecretName string `yaml:"secretName"`
	} `yaml:"ca"`
}

// policyRule is a rule of a NetworkPolicy: it has sources or destinations.
type policyRule struct {
	From, To []struct {
		NamespaceSelector *labelSelector `yaml:"namespaceSelector"`
		PodSelector       *labelSelector `yaml:"podSelector"`
	}
	Ports []struct {
		Port     int
		Protocol string
	}
}

type servicePort struct {
	Name, Protocol string
	Port           int
	TargetPort     string `yaml:"targetPort"`
}

type labelSelector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type podSpec struct {
	ServiceAccountName            string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
	TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		RunAsGroup     int                   `yaml:"runAsGroup"`
		FSGroup        int                   `yaml:"fsGroup"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	TopologySpreadConstraints []struct {
		MaxSkew           int           `yaml:"maxSkew"`
		TopologyKey       string        `yaml:"topologyKey"`
		WhenUnsatisfiable string        `yaml:"whenUnsatisfiable"`
		LabelSelector     labelSelector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Volumes        []struct {
		Name string
		CSI  struct {
			Driver           string
			ReadOnly         bool              `yaml:"readOnly"`
			VolumeAttributes map[string]string `yaml:"volumeAttributes"`
		} `yaml:"csi"`
		Secret struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
		EmptyDir struct {
			Medium    string
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}
}

type container struct {
	Name, Image    string
	RestartPolicy  string `yaml:"restartPolicy"` // Always makes an init container a sidecar
	Args           []string
	Env            []variable
	Ports          []containerPort
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	Lifecycle      struct {
		PreStop struct {
			Sleep struct{ Seconds int }
			Exec  struct{ Command []string }
		} `yaml:"preStop"`
	}
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	Resources struct {
		Requests struct{ CPU, Memory string }
		Limits   struct{ CPU, Memory string }
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type variable struct {
	Name, Value string
	ValueFrom   struct {
		FieldRef struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
	} `yaml:"valueFrom"`
}

type containerPort struct {
	Name, Protocol string
	ContainerPort  int `yaml:"containerPort"`
}

type probe struct {
	HTTPGet struct {
		Path, Port string
	} `yaml:"httpGet"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}
