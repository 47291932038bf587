import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import type { AppChange, ClientChange } from './management.ts'
import {
  parseColor,
  parseGrantTypes,
  parseInitiateLoginUri,
  parseMeteringMode,
  parseName,
  parseOptionalName,
  parseRedirectUris,
  parseScopes,
  parseWebUrl,
} from './values.ts'

/** The named attributes of the app, each checked. REQUEST_INVALID for the first that is wrong. */
export function parseAppChange(request: pb.UpdateAppRequest): AppChange {
  const { name, color, developerName, websiteUrl, dmzUrl, meteringMode } = request
  return {
    ...(name === undefined ? {} : { name: parseName(name) }),
    ...(color === undefined ? {} : { color: parseColor(color) }),
    ...(developerName === undefined
      ? {}
      : { developer_name: parseOptionalName(developerName, 'developerName') }),
    ...(websiteUrl === undefined ? {} : { website_url: parseWebUrl(websiteUrl, 'websiteUrl') }),
    ...(dmzUrl === undefined ? {} : { dmz_url: parseWebUrl(dmzUrl, 'dmzUrl') }),
    ...(meteringMode === undefined ? {} : { metering_mode: parseMeteringMode(meteringMode) }),
  }
}

/** The same of the public client. */
export function parseClientChange(request: pb.UpdateAppRequest): ClientChange {
  const {
    redirectUris,
    postLogoutRedirectUris,
    allowedScopes,
    grantTypes,
    initiateLoginUri,
    deviceThirdPartyInitiateLogin,
  } = request
  return {
    ...(redirectUris === undefined
      ? {}
      : { redirect_uris: parseRedirectUris(redirectUris.values, 'redirectUris') }),
    ...(postLogoutRedirectUris === undefined
      ? {}
      : {
          post_logout_redirect_uris: parseRedirectUris(
            postLogoutRedirectUris.values,
            'postLogoutRedirectUris',
          ),
        }),
    ...(allowedScopes === undefined ? {} : { scopes: parseScopes(allowedScopes.values) }),
    ...(grantTypes === undefined ? {} : { grant_types: parseGrantTypes(grantTypes.values) }),
    ...(initiateLoginUri === undefined
      ? {}
      : { initiate_login_uri: parseInitiateLoginUri(initiateLoginUri) }),
    ...(deviceThirdPartyInitiateLogin === undefined
      ? {}
      : { device_third_party_initiate_login: deviceThirdPartyInitiateLogin }),
  }
}
