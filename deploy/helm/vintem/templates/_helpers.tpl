{{- define "vintem.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}

{{- define "vintem.labels" -}}
app.kubernetes.io/name: vintem
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* Arguments: the root context and the component. */}}
{{- define "vintem.selector" -}}
app.kubernetes.io/name: vintem
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "vintem.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "vintem.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "vintem.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* Settings that all commands share. Secrets are files, so that `kubectl describe` does not show them. */}}
{{- define "vintem.environment" -}}
- { name: VINTEM_DATABASE_URL_FILE, value: /run/secrets/vintem/database-url }
{{- if .Values.usePooler }}
- { name: VINTEM_DATABASE_DIRECT_URL_FILE, value: /run/secrets/vintem/database-direct-url }
{{- end }}
- { name: VINTEM_REDIS_URL_FILE, value: /run/secrets/vintem/redis-url }
- { name: VINTEM_KEY_PEPPER_FILE, value: /run/secrets/vintem/key-pepper }
- { name: VINTEM_SECRET_KEY_FILE, value: /run/secrets/vintem/secret-key }
- { name: VINTEM_PUBLIC_URL, value: {{ .Values.publicUrl | quote }} }
- { name: VINTEM_CONTACT, value: {{ .Values.contact | quote }} }
{{- range $name, $value := .Values.settings }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end -}}

{{- define "vintem.secretMount" -}}
- { name: secrets, mountPath: /run/secrets/vintem, readOnly: true }
{{- end -}}

{{- define "vintem.secretVolume" -}}
- name: secrets
  secret: { secretName: {{ .Values.existingSecret | quote }}, defaultMode: 0440 }
{{- end -}}
