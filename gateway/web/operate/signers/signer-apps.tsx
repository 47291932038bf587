import { type ReactNode, useState } from 'react'
import { type Signer, useUpdateSigner } from '../../api/operate.ts'
import { Confirm } from '../../ui/confirm.tsx'

interface SignerAppsProps {
  readonly signer: Signer
  readonly onClose: () => void
}

/** Asks for the apps that a signer signs for from now on. */
export function SignerApps({ signer: { name, ...apps }, onClose }: SignerAppsProps): ReactNode {
  const [allApps, setAllApps] = useState(apps.allApps)
  const [text, setText] = useState(apps.clientIds.join('\n'))
  const update = useUpdateSigner()
  const clientIds = allApps ? [] : text.split(/[\s,]+/).filter(Boolean)
  return (
    <Confirm
      title={`Change the apps of ${name}?`}
      effect={
        <>
          Sidecars refuse its calls for other apps at once. Its secrets stay.
          <label className="choice">
            <input
              type="checkbox"
              checked={allApps}
              onChange={(event) => setAllApps(event.target.checked)}
            />
            It signs for all apps, also future ones
          </label>
          {!allApps && (
            <label>
              Client ids of its apps, one in each line
              <textarea
                required
                rows={4}
                spellCheck={false}
                value={text}
                onChange={(event) => setText(event.target.value)}
              />
            </label>
          )}
        </>
      }
      action="Change the apps"
      isBusy={update.isPending}
      error={update.error}
      onConfirm={() => update.mutate({ name, allApps, clientIds }, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}
