import type { ReactNode } from 'react'
import { Button } from '../ui/button.tsx'
import { Name } from '../ui/name.tsx'
import type { UsageSearch } from '../ui/usage/search.ts'

/** Whether the view shows one pipeline or model only. */
export const isOfModel = ({ pipeline, model }: UsageSearch): boolean =>
  (pipeline ?? model) !== undefined

interface ModelFilterProps {
  readonly search: UsageSearch
  /** Receives the address without the filter. */
  readonly onEnd: (search: UsageSearch) => void
}

/** Shows the filter by pipeline and model, with a link that removes it. */
export function ModelFilter({ search, onEnd }: ModelFilterProps): ReactNode {
  if (!isOfModel(search)) return null
  const { pipeline, model, page: _, ...rest } = search
  return (
    <div className="row center" role="group" aria-label="Pipeline and model">
      <span>
        Only{' '}
        {pipeline !== undefined && (
          <>
            pipeline{' '}
            <strong>
              <Name>{pipeline}</Name>
            </strong>
          </>
        )}
        {pipeline !== undefined && model !== undefined && ', '}
        {model !== undefined && (
          <>
            model{' '}
            <strong>
              <Name>{model}</Name>
            </strong>
          </>
        )}
        . <span className="soft">Live charges, sessions and losses show for all models only.</span>
      </span>
      <Button isSmall onClick={() => onEnd(rest)}>
        Show all models
      </Button>
    </div>
  )
}
