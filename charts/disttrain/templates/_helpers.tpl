{{- define "disttrain.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "disttrain.fullname" -}}
{{- $name := include "disttrain.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Cluster-scoped names carry the namespace: two releases of one name may live side by side. */}}
{{- define "disttrain.clusterName" -}}
{{- $full := include "disttrain.fullname" . }}
{{- if eq $full .Release.Namespace }}{{ $full }}{{ else }}{{ printf "%s-%s" .Release.Namespace $full }}{{ end }}
{{- end }}

{{- define "disttrain.selectorLabels" -}}
app.kubernetes.io/name: {{ include "disttrain.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "disttrain.labels" -}}
{{ include "disttrain.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "disttrain.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "disttrain.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.create is false: serviceAccount.name must say which one exists" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "disttrain.leaseName" -}}
{{- default (include "disttrain.fullname" .) .Values.leaderElection.leaseName }}
{{- end }}

{{/* What the operator does to jobs and to what it makes for them. A test holds each line to the code. */}}
{{- define "disttrain.rules" -}}
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs]
  # delete: for ttlSecondsAfterFinished
  verbs: [get, list, watch, delete]
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  # get: to see whose it is where the name is taken
  resources: [services, configmaps, secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.progress.enabled }}
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- end }}
