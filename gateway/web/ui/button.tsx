import type { ComponentProps, ReactNode } from 'react'

interface ButtonProps extends Omit<ComponentProps<'button'>, 'className'> {
  readonly kind?: 'plain' | 'main' | 'danger'
  readonly isSmall?: boolean
}

const classes = { plain: 'button', main: 'button main-action', danger: 'button danger' }

export const Button = ({ kind = 'plain', isSmall = false, ...rest }: ButtonProps): ReactNode => (
  <button type="button" {...rest} className={`${classes[kind]}${isSmall ? ' small' : ''}`} />
)
