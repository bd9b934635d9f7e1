{{/* The API's own variables. */}}
{{- define "headwater.apiEnv" -}}
{{- $api := .Values.api -}}
- name: HEADWATER_API_WORKERS
  value: {{ $api.workers | quote }}
{{- with $api.oidc }}
{{- if .issuer }}
- name: HEADWATER_API_ISSUER
  value: {{ .issuer | quote }}
- name: HEADWATER_API_AUDIENCE
  value: {{ required "set api.oidc.audience to the audience that tokens must have" .audience | quote }}
- name: HEADWATER_API_ROLES_CLAIM
  value: {{ .rolesClaim | quote }}
{{- if .jwks }}
- name: HEADWATER_API_JWKS
  value: {{ .jwks | quote }}
{{- end }}
{{- if .roles }}
- name: HEADWATER_API_ROLES
  value: /etc/headwater/roles/roles.json
{{- end }}
{{- end }}
{{- end }}
{{- if $api.open }}
- name: HEADWATER_API_OPEN
  value: "true"
{{- end }}
{{- with $api.allowedHosts }}
- name: HEADWATER_API_ALLOWED_HOSTS
  value: {{ join "," . | quote }}
{{- end }}
{{- with $api.origins }}
- name: HEADWATER_API_ORIGINS
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{- define "headwater.rolesMount" -}}
- name: roles
  mountPath: /etc/headwater/roles
  readOnly: true
{{- end }}

{{- define "headwater.rolesVolume" -}}
- name: roles
  configMap:
    name: {{ include "headwater.fullname" . }}-roles
{{- end }}
